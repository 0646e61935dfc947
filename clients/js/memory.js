// Storage for `Device.open(…, { storage: memoryStorage() })` that forgets: for tests, and where there is no IndexedDB.
export function memoryStorage() {
  let kept = { entries: [] };
  const busy = new Map();
  return {
    read: async () => structuredClone(kept),
    async update(change) {
      const ledger = structuredClone(kept);
      const result = change(ledger);
      kept = structuredClone(ledger);
      return result;
    },
    async alone(what, wait, work) {
      const before = busy.get(what);
      if (before && !wait) return null;
      const mine = Promise.resolve(before).catch(() => null).then(work);
      busy.set(what, mine);
      try {
        return await mine;
      } finally {
        if (busy.get(what) === mine) busy.delete(what);
      }
    },
  };
}
