// A proxy for programs that can't send custom headers: adds the secret and forwards everything else unchanged.
//   node with_secret.mjs http://127.0.0.1:PORT SECRET_FILE        prints its own origin
import { readFileSync } from "node:fs";
import http from "node:http";

const [target, file] = process.argv.slice(2);
const secret = readFileSync(file, "utf8").trim();
const { hostname, port } = new URL(target);

const server = http.createServer((request, response) => {
  const headers = { ...request.headers, authorization: `Bearer ${secret}` };
  // The proxy's own name becomes the target's; a foreign name is forwarded, so that the target refuses it.
  const own = (text) => text?.replace(new RegExp(`^((?:http://)?(?:127\\.0\\.0\\.1|localhost)):${server.address().port}$`), `$1:${port}`);
  for (const name of ["host", "origin"]) if (headers[name]) headers[name] = own(headers[name]);
  const options = { hostname, port, path: request.url, method: request.method, headers };
  const passed = http.request(options, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    response.flushHeaders();
    answer.pipe(response);
  });
  passed.on("error", () => response.destroy());
  response.on("close", () => passed.destroy());
  request.pipe(passed);
});
server.listen(0, hostname, () => console.log(`http://${hostname}:${server.address().port}`));
process.stdin.on("end", () => process.exit(0)).resume();
