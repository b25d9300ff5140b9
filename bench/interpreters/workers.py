# Four processes of Python with one dict of 200,000 entries, for docs/guides/interpreters.md.
# workers.py plain | freeze | apart: forked, forked after gc.freeze(), or one process alone.
import gc, os, sys, time
import json, decimal, asyncio, email, http.server, sqlite3, xml.dom.minidom, unittest    # as a server does
data = {f"key {n}": [n, str(n), {"n": n}] for n in range(200_000)}
way = sys.argv[1]
if way == "freeze":
    gc.collect(); gc.freeze()
def work():
    for turn in range(3):
        sum(value[0] for value in data.values())        # reads, and so counts references
        gc.collect()
    print(os.getpid(), flush=True)
    time.sleep(600)
if way == "apart":                                      # four of these are started
    work()
for _ in range(4):
    if os.fork() == 0:
        work()
time.sleep(600)
