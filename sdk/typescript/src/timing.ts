// Delays that grow, and waiting that an AbortSignal ends.

/** Delays that double from `first` to `longest`, each shortened by up to half at random. */
export class Backoff {
  #next: number;

  constructor(
    readonly first: number,
    readonly longest: number,
  ) {
    this.#next = first;
  }

  next(): number {
    const delay = this.#next;
    this.#next = Math.min(this.longest, delay * 2);
    return delay * (0.5 + Math.random() / 2);
  }

  reset(): void {
    this.#next = this.first;
  }
}

/** Rejects with the signal's reason if it is aborted meanwhile. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** A promise with its two ends. */
export function deferred<T>(): { promise: Promise<T>; resolve: (value: T) => void; reject: (error: unknown) => void } {
  let resolve!: (value: T) => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<T>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  return { promise, resolve, reject };
}
