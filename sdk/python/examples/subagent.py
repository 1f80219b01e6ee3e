#!/usr/bin/env python3
"""The sub-agent of docs/channels.md, written with the SDK. It does what examples/python-subagent does without it.

Needs: pip install attache-sdk
Key:   python3 -c 'import attache_sdk; print(attache_sdk.A2AClient().register("counter")["api_key"])'
Run:   AGENT_KEY=ak_... python3 sdk/python/examples/subagent.py ws://127.0.0.1:7800/api/envelope/ws
See:   connected as agt_...
Try:   attache ask counter "one two three"                    -> streams the words, then: 3 words
       attache ask counter "delete one two"                   -> waits until you approve it: attache approvals
"""
import os
import sys

from attache_sdk import BlockingRun, Fail, Worker


def work(run: BlockingRun) -> str:
    words = run.text.split()
    run.think(f"I count {len(words)} words.")
    if words and words[0] == "delete":
        if not run.approve("delete", {"words": words[1:]}, risk="high"):
            raise Fail("a person denied the request")
    for index, word in enumerate(words, 1):
        run.write(word + " ")
        run.progress("counting", round(100 * index / len(words)))
    run.log("counted")
    return f"{len(words)} words"


def main() -> None:
    address = sys.argv[1].removesuffix("/api/envelope/ws")
    url = "http" + address.removeprefix("ws")
    Worker(agent_key=os.environ["AGENT_KEY"], handler=work, url=url, on_state=lambda state: print(state, flush=True)).run()


if __name__ == "__main__":
    main()
