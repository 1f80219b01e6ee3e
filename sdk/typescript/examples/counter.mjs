#!/usr/bin/env node
// A complete agent: counts words, streams them, and asks before it deletes any.
//
// Run:   AGENT_KEY=ak_… node counter.mjs http://127.0.0.1:7800
// See:   connected as agt_…
// Try:   attache ask counter "one two three"      -> streams the words, then: 3 words
//        attache ask counter "delete one two"     -> waits until you approve it: attache approvals
import { Worker } from "@attache/sdk";

const worker = new Worker(
  {
    url: process.argv[2],
    key: process.env.AGENT_KEY,
    onNotice(notice) {
      if (notice.type === "connected" && notice.opening === "registered") console.log(`connected as ${notice.agentId}`);
      if (notice.type === "broken") console.log(`disconnected: ${notice.error.message}`);
    },
  },
  async (task) => {
    const words = task.text.split(/\s+/).filter(Boolean);
    await task.think(`I count ${words.length} words.`);
    if (words[0] === "delete") {
      const decision = await task.requireApproval({ tool: "delete", input: { words: words.slice(1) }, risk: "high" });
      if (!decision.approved) throw new Error("a person denied the request");
    }
    for (const [index, word] of words.entries()) {
      await task.chunk(`${word} `);
      await task.progress("counting", { percent: Math.round((100 * (index + 1)) / words.length) });
    }
    await task.log("counted");
    return `${words.length} words`;
  },
);
await worker.run();
