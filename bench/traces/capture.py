#!/usr/bin/env python3
"""Captures traces from real things that it starts: `make traces`.

A trace says which pages of which mappings were equal, and how that changed; no contents (`uksm-bench capture --help`). What is
started here is all that is read, and is ended by its process id. Needs root, for what runs as another user and for
control of its own processes only; what is missing on the machine is named and left out.
"""

import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
MOMENTS = 7
EVERY_MS = 5000
KEYS = 12000
VALUE_BYTES = 600


class Missing(Exception):
    """Something that a trace needs is not on this machine."""


def program(name):
    """The program of this name."""
    found = [shutil.which(name), shutil.which(name, path="/usr/sbin:/sbin")]
    found += sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    for path in filter(None, found):
        return str(path)
    raise Missing(f"no program {name}")


def cache():
    """Where the project keeps what it got."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "uksm"


class Things:
    """Processes that were started here."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="uksm-trace-"))
        self.started = []

    def start(self, *command, **options):
        options.setdefault("stdout", subprocess.DEVNULL)
        options.setdefault("stderr", subprocess.DEVNULL)
        child = subprocess.Popen(command, cwd=options.pop("cwd", self.folder), **options)
        self.started.append(child)
        return child

    def end(self):
        for child in reversed(self.started):
            child.terminate()
        for child in self.started:
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def patiently(what, attempt, seconds=60):
    """Tries again until it works."""
    until = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except (OSError, subprocess.CalledProcessError) as error:
            if time.monotonic() > until:
                raise SystemExit(f"{what}: {error}") from error
            time.sleep(0.2)


def connected(path):
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    return client


def set_keys(client, keys, generation=0):
    """Sets keys to values that follow from them."""
    for begin in range(0, len(keys), 500):
        part = keys[begin : begin + 500]
        request = b""
        for key in part:
            value = random.Random(key * 1000 + generation).randbytes(VALUE_BYTES)
            name = b"key:%012d" % key
            request += b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(name), name, len(value), value)
        client.sendall(request)
        answered = 0
        while answered < len(part):
            answered += client.recv(1 << 16).count(b"+OK")


def redis(things):
    """Four servers, 70 % of the keys in common, inserted in another order each; then one key in a hundred is written anew a second."""
    # As the experiments' guests have it, with its libraries.
    packed = sorted(cache().glob("redis/*/usr/bin/redis-server"))
    server = str(packed[-1]) if packed else program("redis-server")
    libraries = {"LD_LIBRARY_PATH": str(packed[-1].parents[1] / "lib/x86_64-linux-gnu")} if packed else {}
    pids, clients = [], []
    for number in range(4):
        path = things.folder / f"{number}.sock"
        options = ["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket", str(path)]
        child = things.start(server, *options, env={**os.environ, **libraries})
        client = patiently("redis", lambda path=path: connected(path))
        own = range((number + 1) * 10 * KEYS, (number + 1) * 10 * KEYS + KEYS * 3 // 10)
        keys = list(range(KEYS * 7 // 10)) + list(own)
        random.Random(number).shuffle(keys)
        set_keys(client, keys)
        pids.append(child.pid)
        clients.append((client, keys))

    def work(stop):
        generation = 0
        while not stop.wait(1):
            generation += 1
            for client, keys in clients:
                set_keys(client, random.Random(generation).sample(keys, len(keys) // 100), generation)

    return pids, work


PYTHON = """
import argparse, asyncio, collections, csv, decimal, email.message, fractions, http.server, json, logging, sqlite3
import ssl, statistics, sys, time, typing, unittest.mock, urllib.request, xml.dom.minidom, zipfile
kept = {f'row {number}': [number, str(number) * 20, {'n': number}] for number in range(20000)}
own = [f'{sys.argv[1]} {number}' * 8 for number in range(10000)]
print('ready', flush=True)
while True:
    text = json.dumps(kept)
    rows = json.loads(text)
    own[int(time.time()) % len(own)] = text[:3000]
    time.sleep(1)
"""


def python(things):
    """Four interpreters with the same modules and the same table, and a list of their own; each parses the table once a second."""
    pids = []
    for number in range(4):
        child = things.start(program("python3"), "-c", PYTHON, str(number), stdout=subprocess.PIPE)
        child.stdout.readline()
        pids.append(child.pid)
    return pids, None


NODE = """
const loaded = ['assert', 'crypto', 'dns', 'http', 'http2', 'https', 'net', 'path', 'stream', 'url', 'util', 'vm', 'zlib'];
for (const name of loaded) require(name);
const kept = new Map();
for (let number = 0; number < 40000; number++) kept.set('row ' + number, {number, text: ('' + number).repeat(12)});
const own = [];
setInterval(() => {
  own.push(JSON.stringify([process.argv[2], own.length, [...kept.values()].slice(0, 2000)]));
  if (own.length > 20) own.shift();
}, 1000);
console.log('ready');
"""


def node(things):
    """Four runtimes with the same modules and the same table, which write a part of it as text once a second."""
    script = things.folder / "app.js"
    script.write_text(NODE)
    pids = []
    for number in range(4):
        child = things.start(program("node"), str(script), str(number), stdout=subprocess.PIPE)
        child.stdout.readline()
        pids.append(child.pid)
    return pids, None


def postgres(things):
    """A server of PostgreSQL with all its processes, while pgbench works with four clients."""
    things.folder.chmod(0o777)
    data = things.folder / "data"
    as_user = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"] if os.getuid() == 0 else []
    where = ["-h", str(things.folder), "-U", "trace"]
    environment = {**os.environ, "HOME": str(things.folder)}
    run = {"check": True, "stdout": subprocess.DEVNULL, "cwd": things.folder, "env": environment}
    subprocess.run([*as_user, program("initdb"), "-D", str(data), "-U", "trace", "-A", "trust"], **run)
    server = things.start(*as_user, program("postgres"), "-D", str(data), "-k", str(things.folder), "-h", "")
    run_quietly = {**run, "stderr": subprocess.DEVNULL}
    patiently("postgres", lambda: subprocess.run([program("createdb"), *where, "bench"], **run_quietly))
    subprocess.run([program("pgbench"), *where, "-i", "-s", "2", "bench"], **run_quietly)
    things.start(program("pgbench"), *where, "-c", "4", "-T", "600", "--rate", "40", "bench")
    time.sleep(5)
    return descendants(server.pid), None


NGINX = """worker_processes 2;
daemon off;
pid {folder}/{number}.pid;
error_log {folder}/{number}.error;
user {user};
events {{ worker_connections 64; }}
http {{
    include /etc/nginx/mime.types;
    access_log off;
    gzip on;
    gzip_min_length 0;
    gzip_types *;
    open_file_cache max=1000;
    server {{
        listen unix:{folder}/{number}.web;
        root {folder}/site;
    }}
}}
"""


def descendants(pid):
    """A process and all that it started, and those started."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return [pid, *(one for text in children for child in text.read_text().split() for one in descendants(int(child)))]


def nginx(things):
    """Eight servers of the same files with two workers each, that compress what 32 clients ask for."""
    things.folder.chmod(0o755)
    site = things.folder / "site"
    site.mkdir()
    names = [f"{number}.html" for number in range(300)]
    for number, name in enumerate(names):
        words = random.Random(number)
        text = " ".join(f"{words.randrange(20000):x}" for _ in range(4000))
        (site / name).write_text(f"<html><body>{text}</body></html>")
    user = "nobody nogroup" if os.getuid() == 0 else "nobody"
    servers, clients = [], []
    for number in range(8):
        settings = things.folder / f"{number}.conf"
        settings.write_text(NGINX.format(folder=things.folder, user=user, number=number))
        servers.append(things.start(program("nginx"), "-c", str(settings), "-p", str(things.folder)))
        path = things.folder / f"{number}.web"
        clients += [patiently("nginx", lambda path=path: connected(path)) for _ in range(4)]

    def ask(client, name):
        client.sendall(b"GET /%s HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n" % name.encode())
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            part = client.recv(1 << 16)
            if not part:
                raise SystemExit("nginx: a client is left alone")
            received += part

    def work(stop):
        draws = random.Random(1)
        while not stop.wait(0.05):
            for client in clients:
                ask(client, draws.choice(names))

    return [pid for server in servers for pid in descendants(server.pid)], work


SITE = """<html><head><title>{title}</title></head><body><canvas id=c width=800 height=600></canvas><table id=t></table>
<script>
const rows = [];
for (let n = 0; n < 20000; n++) rows.push({{name: 'row ' + n, text: ('' + n).repeat(10), site: '{title}'}});
const table = document.getElementById('t');
for (const row of rows.slice(0, 1500)) {{
  const line = table.insertRow();
  line.insertCell().textContent = row.name;
  line.insertCell().textContent = row.text;
}}
const canvas = document.getElementById('c').getContext('2d');
let step = 0;
setInterval(() => {{
  for (let n = 0; n < 100; n++) {{
    canvas.fillStyle = 'hsl(' + (step + n) % 360 + ' 80% 50%)';
    canvas.fillRect((step * 7 + n * 13) % 800, (n * 29) % 600, 40, 40);
  }}
  rows[step++ % rows.length].text += '.';
  localStorage.setItem('seen', JSON.stringify(rows.slice(0, 200)));
}}, 500);
</script></body></html>
"""

PAINTER = """
(let* ((image (car (gimp-image-new 1600 1200 RGB))) (count 0))
  (while (< count 6)
    (let ((layer (car (gimp-layer-new image 1600 1200 RGBA-IMAGE "layer" 100 LAYER-MODE-NORMAL))))
      (gimp-image-insert-layer image layer 0 0)
      (plug-in-plasma RUN-NONINTERACTIVE image layer (+ 1 (modulo count 3)) 2.0)
      (set! count (+ count 1)))))
"""


def document():
    """A document of 40 pages of text."""
    parts = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    pages = []
    for page in range(40):
        lines = b"".join(b"(page %d line %d %s) Tj T*\n" % (page, line, b"word " * 12) for line in range(50))
        text = b"BT /F1 10 Tf 14 TL 40 780 Td\n" + lines + b"ET"
        parts.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(text), text))
        contents = len(parts)
        resources = b"<< /Font << /F1 3 0 R >> >>"
        box = b"[0 0 595 842]"
        parts.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox %s /Resources %s /Contents %d 0 R >>" % (box, resources, contents)
        )
        pages.append(b"%d 0 R" % len(parts))
    parts[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(pages), b" ".join(pages))
    file, places = b"%PDF-1.4\n", []
    for number, part in enumerate(parts, 1):
        places.append(len(file))
        file += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    count = len(parts) + 1
    file += b"xref\n0 %d\n0000000000 65535 f \n%s" % (count, table)
    return file + b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (count, file.index(b"xref\n"))


def desktop(things):
    """A browser with four sites, a reader of documents with two, and a painter with an image of six layers (UKSM §8.2.3), none with a screen."""
    environment = {**os.environ, "HOME": str(things.folder), "QT_QPA_PLATFORM": "offscreen"}
    environment["XDG_RUNTIME_DIR"] = str(things.folder)
    tools = [program("firefox-esr"), program("okular"), program("gimp-console")]
    sites = []
    for number in range(4):
        site = things.folder / f"{number}.html"
        site.write_text(SITE.format(title=f"site {number}"))
        sites.append(site.as_uri())
    profile = things.folder / "profile"
    profile.mkdir()
    browser = [tools[0], "--headless", "--no-remote", "--profile", str(profile), *sites]
    started = [things.start(*browser, env=environment)]
    for number in range(2):
        paper = things.folder / f"{number}.pdf"
        paper.write_bytes(document())
        started.append(things.start(tools[1], str(paper), env=environment))
    started.append(things.start(tools[2], "-i", "-b", PAINTER, env=environment))
    time.sleep(60)
    for child in started:
        if child.poll() is not None:
            raise SystemExit(f"desktop: {child.args[0]} ended on its own: {child.returncode}")
    return [pid for child in started for pid in descendants(child.pid)], None


WORK = """[Unit]
Description=Reads what is there, in another order in each guest
After=multi-user.target
[Service]
ExecStart=/bin/sh -c 'find /usr /etc -xdev -type f | shuf | head -n 1500 | xargs cat > /dev/null; echo uksm-read > /dev/ttyS0'
[Install]
WantedBy=multi-user.target
"""


def image():
    """A Debian on a disk with its kernel and initial ramdisk, made once, of the release and from the hosts that this machine uses."""
    folder = cache() / "traces"
    disk = folder / "debian.ext4"
    if not disk.exists():
        tools = [program("mmdebstrap"), program("mke2fs")]
        suite = next(
            line.split("=")[1].strip()
            for line in Path("/etc/os-release").read_text().splitlines()
            if line.startswith("VERSION_CODENAME=")
        )
        root = folder / "root"
        shutil.rmtree(root, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        packages = "linux-image-cloud-amd64,systemd-sysv,python3,cron,openssh-server"
        sources = [str(path) for path in [Path("/etc/apt/sources.list")] if path.exists()]
        sources += map(str, sorted(Path("/etc/apt/sources.list.d").glob("*.sources")))
        subprocess.run([tools[0], "--variant=minbase", f"--include={packages}", suite, str(root), *sources], check=True)
        (root / "etc/fstab").write_text("/dev/vda / ext4 rw 0 0\n")
        (root / "etc/systemd/system/reads.service").write_text(WORK)
        (root / "etc/systemd/system/multi-user.target.wants/reads.service").symlink_to("/etc/systemd/system/reads.service")
        for name in ["vmlinuz", "initrd.img"]:
            shutil.copy(next((root / "boot").glob(f"{name}-*")), folder / name)
        part = folder / "debian.part"
        subprocess.run([tools[1], "-q", "-t", "ext4", "-d", str(root), str(part), "1500M"], check=True)
        shutil.rmtree(root)
        part.rename(disk)
    return disk


def guests(things):
    """Four virtual machines that boot the same Debian and read 1,500 of its files, each in another order."""
    emulator, disk = program("qemu-system-x86_64"), image()
    pids, consoles = [], []
    for number in range(4):
        console = things.folder / f"{number}.console"
        options = ["-nodefaults", "-display", "none", "-machine", "q35,mem-merge=off", "-m", "256", "-smp", "1"]
        options += ["-accel", "tcg,tb-size=32", "-cpu", "max", "-serial", f"file:{console}"]
        options += ["-drive", f"file={disk},format=raw,if=virtio,snapshot=on"]
        options += ["-kernel", str(disk.parent / "vmlinuz"), "-initrd", str(disk.parent / "initrd.img")]
        options += ["-append", "root=/dev/vda rw console=ttyS0 quiet"]
        pids.append(things.start(emulator, *options, env={**os.environ, "TMPDIR": str(things.folder)}).pid)
        consoles.append(console)

    def have_read():
        for console in consoles:
            if b"uksm-read" not in console.read_bytes():
                raise OSError(f"{console.name}: not yet")

    patiently("guests", have_read, seconds=600)
    return pids, None


TRACES = [redis, python, node, postgres, nginx, desktop, guests]


def capture(bench, trace):
    things = Things()
    try:
        pids, work = trace(things)
        stop = threading.Event()
        worker = threading.Thread(target=work, args=[stop]) if work else None
        if worker:
            worker.start()
        named = [word for pid in pids for word in ("--pid", str(pid))]
        times = ["--every", str(EVERY_MS), "--moments", str(MOMENTS)]
        output = ["--source", trace.__doc__, "--output", str(HERE / f"{trace.__name__}.trace.gz")]
        try:
            subprocess.run([bench, "capture", *named, *times, *output], check=True)
        finally:
            stop.set()
            if worker:
                worker.join()
    finally:
        things.end()


def main():
    bench, *wanted = sys.argv[1:]
    names = [trace.__name__ for trace in TRACES]
    for name in wanted:
        if name not in names:
            raise SystemExit(f"no trace '{name}'; there are {', '.join(names)}")
    for trace in TRACES:
        if wanted and trace.__name__ not in wanted:
            continue
        try:
            capture(bench, trace)
        except Missing as missing:
            print(f"{trace.__name__}: {missing}: left out")


if __name__ == "__main__":
    main()
