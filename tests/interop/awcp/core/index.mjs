// The only thing that the published @awcp/transport-archive imports when it runs.
export class ChecksumMismatchError extends Error {
  constructor(expected, actual) {
    super(`Checksum mismatch: expected ${expected}, got ${actual}`);
  }
}
