// The examples of the README, as files next to the installed package.
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { World } from "./world.js";

/** Where the test command has installed the tarball. */
export const INSTALLED = fileURLToPath(new URL("../installed", import.meta.url));

/** Writes every example whose first line names a file, and returns the names. */
export function writeExamples(): string[] {
  const readme = readFileSync(join(INSTALLED, "node_modules/@attache/sdk/README.md"), "utf8");
  const blocks = [...readme.matchAll(/^```js\n\/\/ (\S+\.mjs)\n([\s\S]*?)^```$/gm)].map(
    ([, name, code]) => [name!, code!] as const,
  );
  for (const [name, code] of blocks) writeFileSync(join(INSTALLED, name), code);
  return blocks.map(([name]) => name);
}

export class Example {
  output = "";
  readonly ended: Promise<number | null>;

  private constructor(readonly child: ChildProcess) {
    for (const stream of [child.stdout!, child.stderr!])
      stream.setEncoding("utf8").on("data", (text: string) => (this.output += text));
    this.ended = once(child, "close").then(([code]) => code as number | null);
  }

  static start(world: World, name: string, args: string[] = [], env: NodeJS.ProcessEnv = {}): Example {
    const given = { ...world.env, ATTACHE_KEY: world.key, ...env };
    return new Example(
      spawn(process.execPath, [name, ...args], { cwd: INSTALLED, env: given, stdio: ["ignore", "pipe", "pipe"] }),
    );
  }

  /** What the example prints, if it ends well. */
  static async run(world: World, name: string, args: string[] = [], env: NodeJS.ProcessEnv = {}): Promise<string> {
    const example = Example.start(world, name, args, env);
    const code = await example.ended;
    if (code !== 0) throw new Error(`${name} exited with ${code}: ${example.output}`);
    return example.output;
  }

  async stop(): Promise<number | null> {
    this.child.kill("SIGTERM");
    return this.ended;
  }
}
