"""Dialogues as tokens: the mask is on the answers and their end tokens, and prompts are those that a chat reads."""

import pytest

from keras_transformer.data import SequenceDataError, encode_chats, pack
from keras_transformer.generation import ChatMessageError, ChatTemplate, ChatTemplateError
from keras_transformer.text import BytePair, HuggingFaceTokenizer

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
# Drops what earlier answers say before "=", as templates do with thoughts.
FORGETFUL = (
    "{% for m in messages %}<{{ m.role }}>"
    "{{ m.content if loop.last or m.role == 'user' else m.content.split('=')[-1] }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def tokenizer(template=TEMPLATE):
    words = BytePair.train(["the cat sat on the mat and the dog sat on the cat"], 290)
    return HuggingFaceTokenizer(words._files()["tokenizer.json"].decode(), chat_template=template)


def dialogue(*contents):
    roles = ["user", "assistant"] * len(contents)
    return [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]


def labels(tokenizer, ids, mask):
    return tokenizer.decode([i for i, chosen in zip(ids, mask, strict=True) if chosen], skip_special_tokens=False)


def test_every_answer_is_a_label_with_its_end_and_nothing_else_is():
    words, messages = tokenizer(), dialogue("the cat?", "sat", "and the dog?", "on the mat")
    chats = encode_chats([messages, {"messages": messages[:2]}], words)
    assert labels(words, chats.token_ids[0], chats.label_masks[0]) == "sat</s>on the mat</s>"
    assert labels(words, chats.token_ids[1], chats.label_masks[1]) == "sat</s>"
    whole = ChatTemplate(TEMPLATE, words.special_tokens).render(messages, add_generation_prompt=False)
    assert words.decode(chats.token_ids[0], skip_special_tokens=False) == whole
    assert chats.dropped == 0


def test_the_tokens_before_an_answer_are_the_prompt_of_a_chat():
    words, messages = tokenizer(), dialogue("the cat?", "the cat sat", "and the dog?", "on the mat")
    ids, mask = (each[0] for each in encode_chats([messages], words)[:2])
    template = ChatTemplate(TEMPLATE, words.special_tokens)
    starts = [i for i in range(1, len(mask)) if mask[i] and not mask[i - 1]]
    for start, turn in zip(starts, (1, 3), strict=True):
        assert ids[:start] == words.encode(template.render(messages[:turn]), allow_special_tokens=True)


def test_tokens_that_would_merge_across_the_beginning_of_an_answer_do_not():
    """The template ends with "the c", and the answer goes on: as one text there would be a token "the cat"."""
    words = tokenizer("{% for m in messages %}{{ m.content }}{% endfor %}")
    messages = dialogue("the c", "at sat")
    ids, mask = (each[0] for each in encode_chats([messages], words)[:2])
    assert words.decode(ids) == "the cat sat"
    assert ids != words.encode("the cat sat")
    assert ids[: mask.index(True)] == words.encode("the c")
    assert labels(words, ids, mask) == "at sat"


def test_only_the_last_answer():
    words, messages = tokenizer(), dialogue("the cat?", "sat", "and the dog?", "on the mat")
    ids, mask = (each[0] for each in encode_chats([messages], words, answers="last")[:2])
    assert labels(words, ids, mask) == "on the mat</s>"
    assert ids == encode_chats([messages], words).token_ids[0]


def test_a_template_that_rewrites_earlier_answers():
    words, messages = tokenizer(FORGETFUL), dialogue("the cat?", "a=sat", "and the dog?", "b=mat")
    with pytest.raises(SequenceDataError, match="message 1 of dialogue 1 .*answers='last'"):
        encode_chats([messages[:2], messages], words)
    ids, mask = (each[0] for each in encode_chats([messages], words, answers="last")[:2])
    assert labels(words, ids, mask) == "b=mat</s>"
    assert "a=" not in words.decode(ids)


def test_long_dialogues_are_dropped_and_counted():
    words, messages = tokenizer(), dialogue("the cat?", "sat")
    length = len(encode_chats([messages], words).token_ids[0])
    assert encode_chats([messages], words, max_length=length).dropped == 0
    chats = encode_chats([messages, messages], words, max_length=length - 1)
    assert (chats.token_ids, chats.dropped) == ([], 2)


def test_packed_rows_have_the_answers_as_labels():
    words = tokenizer()
    chats = encode_chats([dialogue("the cat?", "sat"), dialogue("the dog?", "on the mat")], words)
    inputs, targets = pack(chats.token_ids, 80, 1, label_masks=chats.label_masks, shuffle=False)[0]
    chosen = targets[0] != -100
    assert sorted(words.decode(targets[0][chosen], skip_special_tokens=False).split("</s>")) == [
        "",
        "on the mat",
        "sat",
    ]
    assert inputs["segment_ids"].max() == 2


def test_refusals():
    words = tokenizer()
    with pytest.raises(SequenceDataError, match="Dialogue 1 needs a message of the user"):
        encode_chats([dialogue("a", "b"), dialogue("a")], words)
    with pytest.raises(SequenceDataError, match="Dialogue 0 needs a message of the user"):
        encode_chats([dialogue("a", "b")[1:]], words)
    with pytest.raises(ChatMessageError, match="role"):
        encode_chats([[{"content": "a"}]], words)
    with pytest.raises(ChatTemplateError, match="no chat template"):
        encode_chats([dialogue("a", "b")], tokenizer(None))
    with pytest.raises(ValueError, match="answers"):
        encode_chats([], words, answers="first")
