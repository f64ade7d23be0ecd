"""Checks that hf2q and Python's huggingface_hub share one cache.

A server on this machine plays the hub and its storage. Each side loads a repository, the other must find it; a download
that is interrupted must leave a part to go on from and nothing else.

    python tools/hub/interop.py target/release/hf2q models/demo/tiny-dense
"""

import hashlib
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "org/demo"


class Hub(http.server.ThreadingHTTPServer):
    """A repository of one folder: large files are redirected to a storage on another port."""

    daemon_threads = True

    def __init__(self, folder, storage=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {p.name: p.read_bytes() for p in sorted(pathlib.Path(folder).iterdir()) if p.is_file()}
        self.files["README.md"] = b"# words\n"
        self.storage = storage
        self.log = []
        self.bytes_per_second = None
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


def is_large(name):
    return name.endswith(".safetensors")


def etag(name, data):
    if is_large(name):
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        # Python asks for things of its own as well.
        if REPOSITORY in self.path:
            self.server.log.append((self.command, self.path, self.headers.get("Range")))
        path = self.path.split("?")[0]
        if path.startswith(f"/api/models/{REPOSITORY}/tree/"):
            return self.send_json([self.entry(n, d) for n, d in self.server.files.items()])
        if path.startswith(f"/api/models/{REPOSITORY}"):
            return self.send_json({"id": REPOSITORY, "sha": COMMIT, "siblings": self.siblings()})
        prefix = f"/{REPOSITORY}/resolve/"
        name = path[len(prefix) :].split("/", 1)[-1] if path.startswith(prefix) else None
        if name not in self.server.files:
            return self.send(404, b"", {"X-Error-Code": "EntryNotFound" if name else "RepoNotFound"})
        data = self.server.files[name]
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{etag(name, data)}"', "Accept-Ranges": "bytes"}
        if is_large(name) and self.server.storage:
            headers |= {"X-Linked-Etag": headers.pop("ETag"), "X-Linked-Size": str(len(data))}
            headers["Location"] = self.server.storage.url + self.path
            return self.send(302, b"", headers)
        start = 0
        if value := self.headers.get("Range"):
            start = int(value.removeprefix("bytes=").split("-")[0])
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        return self.send(206 if value else 200, data[start:], headers)

    def entry(self, name, data):
        large = {"oid": etag(name, data), "size": len(data), "pointerSize": 134}
        base = {"type": "file", "path": name, "size": len(data), "oid": etag("", data)}
        return base | {"lfs": large} if is_large(name) else base

    def siblings(self):
        found = []
        for name, data in self.server.files.items():
            one = {"rfilename": name, "size": len(data), "blobId": etag("", data)}
            if is_large(name):
                one["lfs"] = {"sha256": etag(name, data), "size": len(data), "pointerSize": 134}
            found.append(one)
        return found

    def send_json(self, value):
        self.send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def send(self, status, body, headers):
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        speed = self.server.bytes_per_second
        step = max(speed // 50, 1) if speed else len(body) or 1
        try:
            for at in range(0, len(body), step):
                self.wfile.write(body[at : at + step])
                if speed:
                    time.sleep(step / speed)
        except OSError:
            pass  # The client left, as some checks want it to.


class Check:
    def __init__(self, program, folder):
        self.program = program
        self.storage = Hub(folder)
        self.hub = Hub(folder, self.storage)
        self.names = [n for n in self.hub.files if n != "README.md"]

    def environment(self, home, **more):
        kept = {k: v for k, v in os.environ.items() if not k.upper().startswith(("HF_", "HUGGING")) and "PROXY" not in k.upper()}
        return kept | {"HF_HOME": str(home), "HF_ENDPOINT": self.hub.url, "XDG_CACHE_HOME": str(home)} | more

    def convert(self, home, *flags, **more):
        command = [self.program, "convert", REPOSITORY, "--force", "-o", str(home / "out.gguf"), *flags]
        return subprocess.run(command, env=self.environment(home, **more), capture_output=True, text=True)

    def python(self, home, code, **more):
        code = "from huggingface_hub import *\n" + code
        ran = subprocess.run([sys.executable, "-c", code], env=self.environment(home, **more), capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip().splitlines()[-1]

    def forget(self):
        self.hub.log.clear()
        self.storage.log.clear()

    def downloads(self):
        return [path for method, path, _ in self.hub.log + self.storage.log if method == "GET" and "/resolve/" in path]

    def tree(self, home):
        root = home / "hub" / "models--org--demo"
        return sorted(str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir())


def ours_is_found_by_python(check, home):
    ran = check.convert(home)
    assert ran.returncode == 0, ran.stderr
    snapshot = home / "hub/models--org--demo/snapshots" / COMMIT
    assert sorted(os.listdir(snapshot)) == sorted(check.names), os.listdir(snapshot)
    check.forget()
    offline = f"print(snapshot_download('{REPOSITORY}', local_files_only=True))"
    assert check.python(home, offline) == str(snapshot)
    one = f"print(hf_hub_download('{REPOSITORY}', 'model.safetensors'))"
    assert check.python(home, one, HF_HUB_OFFLINE="1") == str(snapshot / "model.safetensors")
    scan = "i = scan_cache_dir(); assert not i.warnings, i.warnings; print([r.repo_id for r in i.repos])"
    assert check.python(home, scan) == f"['{REPOSITORY}']"
    assert check.hub.log == [], check.hub.log
    online = f"print(snapshot_download('{REPOSITORY}', ignore_patterns='README.md'))"
    assert check.python(home, online) == str(snapshot)
    assert check.downloads() == [], check.downloads()
    everything = f"print(snapshot_download('{REPOSITORY}'))"
    assert check.python(home, everything) == str(snapshot)
    assert [p.rsplit("/", 1)[1] for p in check.downloads()] == ["README.md"], check.downloads()


def python_is_found_by_ours(check, home):
    check.python(home, f"print(snapshot_download('{REPOSITORY}'))")
    check.forget()
    ran = check.convert(home, "--offline")
    assert ran.returncode == 0 and check.hub.log == [], ran.stderr
    ran = check.convert(home, HF_HUB_OFFLINE="1")
    assert ran.returncode == 0 and check.hub.log == [], ran.stderr
    ran = check.convert(home)
    assert ran.returncode == 0 and len(check.hub.log) == 1, (ran.stderr, check.hub.log)
    one = home / "one"
    check.python(one, f"print(hf_hub_download('{REPOSITORY}', 'tokenizer.json'))")
    ran = check.convert(one, "--offline")
    assert ran.returncode == 1 and "config.json, model.safetensors is missing" in ran.stderr, ran.stderr
    check.forget()
    assert check.convert(one).returncode == 0
    assert not any(p.endswith("tokenizer.json") for p in check.downloads()), check.downloads()


def an_interrupted_one_goes_on(check, home):
    check.storage.bytes_per_second = 4_000_000
    for number in (signal.SIGINT, signal.SIGKILL):
        command = [check.program, "convert", REPOSITORY, "-o", str(home / "out.gguf")]
        ran = subprocess.Popen(command, env=check.environment(home), stderr=subprocess.PIPE, text=True)
        time.sleep(1.0)
        ran.send_signal(number)
        _, errors = ran.communicate()
        assert ran.returncode == (130 if number == signal.SIGINT else -number), (ran.returncode, errors)
        tree = check.tree(home)
        assert all(f.startswith("blobs/") for f in tree), tree
        assert [f.endswith(".incomplete") for f in tree].count(True) == 1, tree
        assert not (home / "out.gguf").exists()
    check.storage.bytes_per_second = None
    check.forget()
    ran = check.convert(home)
    assert ran.returncode == 0, ran.stderr
    ranges = [r for _, path, r in check.storage.log if path.endswith("model.safetensors")]
    assert len(ranges) == 1 and int(ranges[0].removeprefix("bytes=").removesuffix("-")) > 1_000_000, ranges
    check.python(home, f"print(snapshot_download('{REPOSITORY}', local_files_only=True))")


def both_at_once_agree(check, home):
    check.storage.bytes_per_second = 6_000_000
    code = f"from huggingface_hub import snapshot_download; snapshot_download('{REPOSITORY}')"
    python = subprocess.Popen([sys.executable, "-c", code], env=check.environment(home), stderr=subprocess.PIPE, text=True)
    ran = check.convert(home)
    _, errors = python.communicate()
    check.storage.bytes_per_second = None
    assert python.returncode == 0, errors
    assert ran.returncode == 0, ran.stderr
    assert not any(f.endswith(".incomplete") for f in check.tree(home)), check.tree(home)


def main():
    import huggingface_hub

    print("huggingface_hub", huggingface_hub.__version__)
    program, folder = (str(pathlib.Path(a).resolve()) for a in sys.argv[1:3])
    for run in (ours_is_found_by_python, python_is_found_by_ours, an_interrupted_one_goes_on, both_at_once_agree):
        with tempfile.TemporaryDirectory() as home:
            run(Check(program, folder), pathlib.Path(home))
        print("ok", run.__name__)


if __name__ == "__main__":
    main()
