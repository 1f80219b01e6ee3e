// Files of a workspace: uploaded and downloaded as streams.
import type { WorkspaceArtifact } from "./api.js";
import { UnexpectedReplyError } from "./errors.js";
import type { HubConnection, RequestOptions } from "./http.js";
import { Paged } from "./paged.js";
import { Backoff, sleep } from "./timing.js";

export type ArtifactContent = string | Uint8Array | Blob | ReadableStream<Uint8Array>;

export interface ArtifactDownload {
  /** The bytes, as they arrive. A broken connection is resumed where it broke. */
  stream: ReadableStream<Uint8Array>;
  /** The size of the whole artifact. */
  size: number;
  mediaType: string;
  /** Reads everything into memory. */
  bytes(): Promise<Uint8Array>;
  text(): Promise<string>;
}

export class Artifacts {
  constructor(readonly hub: HubConnection) {}

  list(workspace: string, { signal, limit }: { limit?: number } & RequestOptions = {}): Paged<WorkspaceArtifact> {
    return new Paged(async (cursor) => {
      const path = { workspace };
      const page = await this.hub.request("GET /api/v1/workspaces/{workspace}/artifacts", {
        path,
        query: { limit, cursor },
        signal,
      });
      return { items: page.artifacts, next: page.next_cursor };
    });
  }

  /** Its name, size, type and hash. */
  async info(artifact: string, { signal }: RequestOptions = {}): Promise<WorkspaceArtifact> {
    const given = {
      method: "GET",
      path: place(artifact),
      query: { meta: 1 },
      headers: { accept: "application/json" },
      isRepeatable: true,
      signal,
    };
    return (await this.hub.json(await this.hub.send(given))) as WorkspaceArtifact;
  }

  /**
   * Uploads a file. Each upload makes a new artifact, even under the same name, so it isn't repeated if the connection
   * breaks before the hub answers.
   */
  async upload(
    workspace: string,
    name: string,
    content: ArtifactContent,
    { mediaType, signal }: { mediaType?: string } & RequestOptions = {},
  ): Promise<WorkspaceArtifact> {
    const type = mediaType ?? ((content instanceof Blob && content.type) || "application/octet-stream");
    const request = {
      method: "PUT",
      path: `/api/v1/workspaces/${encodeURIComponent(workspace)}/artifacts/${encodeURIComponent(name)}`,
      headers: { accept: "application/json", "content-type": type },
      body: content as BodyInit,
      isRepeatable: false,
      timeoutMs: 0,
      signal,
    };
    // A stream can be read only once, even if the hub took nothing.
    const response =
      content instanceof ReadableStream ? await this.hub.sendOnce(request) : await this.hub.send(request);
    return (await this.hub.json(response)) as WorkspaceArtifact;
  }

  /** `start` and `end` select bytes from `start` up to, but not including, `end`. */
  async download(
    artifact: string,
    { start = 0, end, signal }: { start?: number; end?: number } & RequestOptions = {},
  ): Promise<ArtifactDownload> {
    const first = await this.#part(artifact, start, end, undefined, signal);
    const size = Number(
      /\/(\d+)$/.exec(first.headers.get("content-range") ?? "")?.[1] ?? first.headers.get("content-length"),
    );
    const stream = this.#resuming(artifact, first, start, Math.min(end ?? size, size), signal);
    const collected = () => new Response(stream);
    return {
      stream,
      size,
      mediaType: first.headers.get("content-type") ?? "application/octet-stream",
      bytes: async () => new Uint8Array(await collected().arrayBuffer()),
      text: () => collected().text(),
    };
  }

  async #part(
    artifact: string,
    start: number,
    end: number | undefined,
    etag: string | undefined,
    signal?: AbortSignal,
  ): Promise<Response> {
    const headers: Record<string, string> = { accept: "application/octet-stream" };
    if (start || end !== undefined) headers["range"] = `bytes=${start}-${end === undefined ? "" : end - 1}`;
    const response = await this.hub.send(
      { method: "GET", path: place(artifact), headers, isRepeatable: true, signal },
      true,
    );
    if (!response.body || (etag && response.headers.get("etag") !== etag)) {
      throw new UnexpectedReplyError(this.hub.url.origin, "the artifact changed while it was downloaded");
    }
    return response;
  }

  #resuming(
    artifact: string,
    first: Response,
    start: number,
    end: number,
    signal?: AbortSignal,
  ): ReadableStream<Uint8Array> {
    const backoff = new Backoff(100, 2_000);
    const etag = first.headers.get("etag") ?? undefined;
    let reader = first.body!.getReader();
    let position = start;
    return new ReadableStream<Uint8Array>({
      pull: async (controller) => {
        while (position < end) {
          try {
            const { value } = await reader.read();
            if (!value) throw this.hub.unreachable(new Error("the connection closed early"));
            backoff.reset();
            position += value.length;
            return controller.enqueue(value);
          } catch {
            await sleep(backoff.next(), signal);
            reader = (await this.#part(artifact, position, end, etag, signal)).body!.getReader();
          }
        }
        controller.close();
        reader.cancel().catch(() => {});
      },
      cancel: (reason) => reader.cancel(reason),
    });
  }
}

const place = (artifact: string): string => `/api/v1/artifacts/${encodeURIComponent(artifact)}`;
