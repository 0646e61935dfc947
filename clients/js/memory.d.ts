import type { Storage } from "./tacit.js";

/** Storage that forgets: for tests, and where there is no IndexedDB. */
export function memoryStorage(): Storage;
