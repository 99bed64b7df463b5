"""Chat templates: the texts they write, and what the sandbox refuses."""

import pytest

from keras_transformer.generation import ChatMessageError, ChatTemplate, ChatTemplateError

CHATML = """\
{%- if tools %}
{{- '<|im_start|>system\\nTools:\\n' }}
    {%- for tool in tools %}
{{- tool | tojson }}
    {%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{% for message in messages %}
    {% if message.role == 'unknown' %}{{ raise_exception('no role ' + message.role) }}{% endif %}
<|im_start|>{{ message.role }}
{% generation %}{{ message.content }}{% endgeneration %}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{{ bos_token }}{% endif %}"""


def rendered(messages, **options):
    return ChatTemplate(CHATML, {"start": "<s>"}).render(messages, **options)


def test_text_of_a_conversation():
    messages = [
        {"role": "system", "content": "Be <brief> & kind."},
        {"role": "user", "content": "Grüße?"},
        {"role": "assistant", "content": "'Hallo'"},
        {"role": "user", "content": ""},
    ]
    assert rendered(messages) == (
        "<|im_start|>system\nBe <brief> & kind.<|im_end|>\n<|im_start|>user\nGrüße?<|im_end|>\n"
        "<|im_start|>assistant\n'Hallo'<|im_end|>\n<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<s>"
    )
    assert not rendered(messages, add_generation_prompt=False).endswith("<s>")
    assert messages[1] == {"role": "user", "content": "Grüße?"}


def test_text_alone_is_a_message_of_the_user():
    assert rendered("Hi") == rendered([{"role": "user", "content": "Hi"}])


def test_tools_are_json_that_is_not_escaped():
    tool = {"name": "grüße", "parameters": {"type": "object", "note": "<a & 'b'>"}}
    start = (
        "<|im_start|>system\nTools:\n" + '{"name": "grüße", "parameters": {"type": "object", "note": "<a & \'b\'>"}}'
    )
    assert rendered("Hi", tools=[tool]).startswith(start + "<|im_end|>\n")


CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}


@pytest.mark.parametrize(
    ("content", "written"),
    [
        ("'<' + each.content + '>'", "<>"),
        ("each.content", ""),
        ("'call' if each.content is none else each.content", "call"),
        ("each.content if each['content'] is not none else '-'", "-"),
    ],
)
def test_a_call_without_content_is_no_text_where_the_template_does_not_ask(content, written):
    template = ChatTemplate("{% for each in messages %}{{ " + content + " }}{% endfor %}")
    assert template.render([CALL]) == written
    assert CALL["content"] is None


def test_a_template_can_refuse_messages():
    with pytest.raises(ChatTemplateError, match="no role unknown"):
        rendered([{"role": "unknown", "content": "x"}])


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "not empty"),
        (7, "list of dicts"),
        (["hello"], "Message 0 must be a dict"),
        ([{"role": "user", "content": "x"}, {"content": "x"}], "Message 1 needs a 'role'"),
        ([{"role": "user"}], "Message 0 needs a 'content'"),
        ([{"role": "user", "content": 3}], "Message 0 needs a 'content'"),
    ],
)
def test_invalid_messages_are_named(messages, words):
    with pytest.raises(ChatMessageError, match=words):
        rendered(messages)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'system'}) }}",
        "{{ 'a' * 1000000000 }}",
        "{{ 9 ** 999999 }}",
        "{% for each in range(1000000000) %}{% endfor %}",
        "{{ missing.attribute }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_the_sandbox_refuses(source):
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(ChatTemplateError):
        ChatTemplate(source).render(messages)
    assert messages == [{"role": "user", "content": "x"}]


def test_an_invalid_template_is_refused():
    with pytest.raises(ChatTemplateError, match="not valid"):
        ChatTemplate("{% for each in messages %}")
