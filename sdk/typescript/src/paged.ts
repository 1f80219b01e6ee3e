// Lists of the hub, which arrive in pages.

interface Page<T> {
  items: T[];
  next: string | null | undefined;
}

/** A list. Iterate over it with `for await`, or read it whole with `all`. Nothing is requested before that. */
export class Paged<T> implements AsyncIterable<T> {
  readonly #read: (cursor: string | undefined) => Promise<Page<T>>;

  constructor(read: (cursor: string | undefined) => Promise<Page<T>>) {
    this.#read = read;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    let cursor: string | undefined;
    do {
      const page = await this.#read(cursor);
      yield* page.items;
      cursor = page.next ?? undefined;
    } while (cursor !== undefined);
  }

  async all(): Promise<T[]> {
    const items: T[] = [];
    for await (const item of this) items.push(item);
    return items;
  }
}
