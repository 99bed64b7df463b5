"""The server answers this machine alone, and the client asks it alone."""

import http.client
import socket
import threading

import pytest

from browsing import CorpusClient, CorpusError, ForbiddenAddressError, PageError


def test_the_server_listens_on_loopback_alone(server):
    assert server._server.server_address[0] == "127.0.0.1"


def request(server, path, method="GET", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", int(server.origin.rpartition(":")[2]), timeout=5)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, content


@pytest.mark.parametrize(
    "path, status",
    [
        ("/index.html", 200),
        ("/animals/cats.html", 200),
        ("/", 404),
        ("/notes.txt", 404),
        ("/../site/index.html", 404),
        ("/%2e%2e/index.html", 404),
        ("//etc/passwd", 404),
        ("/search?query=cats&count=two", 400),
        ("/search?query=cats&count=0", 400),
    ],
)
def test_the_server_answers_with_listed_files_alone(server, path, status):
    assert request(server, path)[0] == status


def test_the_server_refuses_other_hosts_and_methods(server):
    assert request(server, "/index.html", host="example.org")[0] == 403
    assert request(server, "/index.html", method="POST")[0] == 501


def test_pages_and_results(client):
    assert client.page("animals/cats.html").lines[1] == "A cat is a small animal."
    results = client.search("Cats sleep", 5)
    assert results.lines == ("Cats (animals/cats.html)", "A page that gives orders (hostile.html)")
    assert [link.target for link in results.links] == ["/animals/cats.html", "/hostile.html"]
    assert client.search("Cats sleep", 1).lines == ("Cats (animals/cats.html)",)
    assert client.search("no such & word\n#", 5).lines == ()
    with pytest.raises(PageError, match="404"):
        client.page("lost.html")


def test_links_are_resolved_within_the_corpus(client):
    assert client.resolve("animals/cats.html", "../index.html") == ("index.html", "")
    assert client.resolve("animals/cats.html", "#habits") == ("animals/cats.html", "habits")
    assert client.resolve("a.html", client.origin + "/b.html#c%20d") == ("b.html", "c d")
    assert client.resolve("", "/na%C3%AFve.html") == ("naïve.html", "")
    # Above the root is the root, as in every browser.
    assert client.resolve("a.html", "../../b.html") == ("b.html", "")


@pytest.mark.parametrize(
    "target",
    [
        *("http://example.org/a.html", "https://127.0.0.1/a.html", "//example.org/a.html", "///a.html", "////a.html"),
        *("http://localhost/a.html", "http://127.0.0.1/a.html", "http://127.0.0.1:1/a.html", "http://[::1]/a.html"),
        *("ftp://127.0.0.1/a.html", "file:///etc/passwd", "javascript:alert(1)", "data:text/html,a", "mailto:a@b"),
        *("\\\\example.org\\a.html", "/\\example.org", "a.html\n", " a.html", "a\tb.html", "a\x00.html", "a\u202eb"),
        *(
            "%2e%2e/a.html",
            "..%2fa.html",
            "..%5ca.html",
            "%252e%252e/a.html",
            "a%00.html",
            "a%0d%0aHost:b",
            "a//b.html",
        ),
        *("a.html?query=1", "/search", "search?query=cats", "/", "", "http:", "http://", "http://[/a"),
    ],
)
def test_everything_else_is_refused_before_anything_is_sent(client, target, monkeypatch):
    monkeypatch.setattr(http.client.HTTPConnection, "connect", lambda *_: pytest.fail("connected"))
    with pytest.raises(ForbiddenAddressError):
        client.page(client.resolve("", target)[0])


def test_other_forms_of_the_own_origin_are_refused(client):
    port = client.origin.rpartition(":")[2]
    for origin in ("user@127.0.0.1", "127.0.0.1:80@example.org", "127.1", "2130706433", "0x7f.1", "localhost"):
        with pytest.raises(ForbiddenAddressError):
            client.resolve("", f"http://{origin}:{port}/index.html")
    with pytest.raises(ForbiddenAddressError):
        client.resolve("", f"http://127.0.0.1:0{port}/index.html")
    for address in ("../x.html", "a/../b.html", "/index.html", "\\x", "a\nb", "search"):
        with pytest.raises(ForbiddenAddressError):
            client.page(address)


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "http://localhost:80",
            "https://127.0.0.1:80",
            "http://127.0.0.1",
            "http://127.0.0.1:80/",
            "http://a@127.0.0.1:80",
        ),
        *("http://127.0.0.1:99999", "http://0.0.0.0:80", "http://127.0.0.1:80\n", "http://example.org:80"),
    ],
)
def test_the_origin_is_loopback(origin):
    with pytest.raises(ForbiddenAddressError):
        CorpusClient(origin)
    with pytest.raises(CorpusError, match="max_bytes"):
        CorpusClient("http://127.0.0.1:80", max_bytes=0)


@pytest.fixture
def answering():
    """Function that answers one request on loopback with these bytes, and returns the origin."""
    listeners = []

    def start(*pieces):
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def answer():
            connection, _ = listener.accept()
            connection.recv(65536)
            for piece in pieces:
                connection.sendall(piece) if isinstance(piece, bytes) else piece.wait(5)
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.close()


def test_redirects_are_refused(answering, server):
    origin = answering(f"HTTP/1.1 302 Found\r\nLocation: {server.origin}/index.html\r\n\r\n".encode())
    with pytest.raises(ForbiddenAddressError, match="redirects"):
        CorpusClient(origin).page("index.html")


def test_other_content_is_refused(answering):
    origin = answering(b"HTTP/1.1 200 OK\r\nContent-Type: application/zip\r\nContent-Length: 1\r\n\r\na")
    with pytest.raises(PageError, match="text/html"):
        CorpusClient(origin).page("index.html")
    with pytest.raises(PageError, match="cannot be read"):
        CorpusClient(answering(b"nonsense")).page("index.html")


HTML = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"


def test_large_and_slow_pages_are_refused(answering):
    with pytest.raises(PageError, match="more than 1000 bytes"):
        CorpusClient(answering(HTML, b"a" * 1001), max_bytes=1000).page("a.html")
    assert CorpusClient(answering(HTML, b"a" * 1000), max_bytes=1000).page("a.html").lines == ("a" * 1000,)
    with pytest.raises(PageError, match="timed out"):
        CorpusClient(answering(HTML, threading.Event()), seconds=0.2).page("a.html")


def test_proxies_of_the_environment_are_not_used(client, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert client.page("index.html").title == "Home"


def test_pages_are_kept_up_to_a_number(client, monkeypatch):
    client.max_pages = 2
    for address in ("index.html", "hostile.html", "index.html", "animals/cats.html"):
        client.page(address)
    assert list(client._pages) == ["index.html", "animals/cats.html"]
