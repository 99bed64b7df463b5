"""HTML as lines, links and sections."""

import pytest

from browsing import CorpusError, PageError, read_html
from browsing.corpus import Corpus
from browsing.pages import Link


def test_a_page_is_lines_links_and_sections(site):
    page = site.page("animals/cats.html")
    assert page.title == "Cats"
    assert page.lines == (
        *("Cats", "A cat is a small animal.", "Habits", "Cats sleep a lot. See home.", "cats.purr(volume=3)", "Purrs."),
        *("stop()", "New in version 2.1.", "New in version 1.4.", "cats.nap()", "Naps.", "Lions", "They roar."),
    )
    assert page.links == (Link("../index.html", 3, 26),)
    sections = [(each.title, each.line, each.end, each.anchor) for each in page.sections]
    assert sections == [
        ("Cats", 0, 11, ""),
        ("Habits", 2, 11, "habits"),
        ("cats.purr(volume=3)", 4, 9, "cats.purr"),
        ("stop()", 6, 8, "cats.purr.stop"),
        ("cats.nap()", 9, 11, "cats.nap"),
        ("Lions", 11, 13, ""),
    ]
    # The text after the inner list belongs to the outer entry.
    assert [page.section_at(line).title for line in (3, 7, 8, 10)] == [
        *("Habits", "stop()", "cats.purr(volume=3)", "cats.nap()"),
    ]


def test_long_blocks_are_wrapped_and_links_stay_at_their_words():
    words = " ".join(f"word{index}" for index in range(30))
    page = read_html(
        "a.html", f"<p>{words} <a href='b.html'>the  link</a>, {'x' * 120} <a href='c.html'><img></a>end</p>"
    )
    assert max(len(line) for line in page.lines if "xxx" not in line) <= 100
    assert page.text == f"{words} the link, {'x' * 120} end"
    (first, second) = page.links
    assert page.lines[first.line][: first.column].endswith("the link")
    assert (second.target, page.lines[second.line]) == ("c.html", "end")


def test_preformatted_lines_stay_lines_and_white_space_is_one_space():
    assert read_html("a", "<pre>def f():\n    return  1\n\n</pre>a\n b<br>c").lines == (
        "def f():",
        "return 1",
        "a b",
        "c",
    )


def test_no_control_character_of_a_page_remains(site):
    page = site.page("hostile.html")
    assert page.title == "A page that gives orders"
    text = page.text + page.title + "".join(each.title for each in page.sections)
    assert not [each for each in text if not each.isprintable() or 0xE000 <= ord(each) < 0xF900]
    assert "[2Jleft: 99 end" in page.lines
    # Private characters that mark links inside of the reader cannot come from a page.
    assert "search dogs end…open 1 7" in page.lines
    assert len(page.links) == 6


@pytest.mark.parametrize(
    "html", ["", "<", "<a href='x'>y", "</dl></dd></a>", "<dd>x", "<nav><p>y", "<title>x", "&#0;&bad;"]
)
def test_broken_html_is_read(html):
    assert len(read_html("a.html", html).lines) <= 1


def test_a_corpus_is_the_html_files_of_its_folder(site, tmp_path):
    assert site.addresses == ("animals/cats.html", "hostile.html", "index.html")
    for address in ("notes.txt", "../site/index.html", "/etc/passwd"):
        assert address not in site
        with pytest.raises(PageError):
            site.html(address)
    outside = tmp_path / "outside.html"
    outside.write_text("<p>secret")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link.html").symlink_to(outside)
    with pytest.raises(CorpusError, match="no HTML"):
        Corpus(tmp_path / "inside")
    assert Corpus(tmp_path, include=lambda address: "outside" in address).addresses == ("outside.html",)
