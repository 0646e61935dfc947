// HPKE (RFC 9180) of tacit.js, base mode: X25519, HKDF-SHA256, AES-128-GCM; which keys reports are encrypted to, and
// invitations for the coordinator.

export default ({ must, unhex, utf8, concat, big, settled, sha256, imported }) => {
  const FIELD = 2n ** 255n - 19n;
  const isKey = (key) => {
    const u = big(unhex(key).reverse());
    const w = u * u - 1n; // 0: a small order
    return u < FIELD && (u * w * (w ** 4n - (4n * u * (u * u + 486662n * u + 1n)) ** 2n)) % FIELD;
  };

  const hmac = async (key, message) => settled(crypto.subtle.sign("HMAC", await imported(key, { name: "HMAC", hash: "SHA-256" }, "sign"), message));
  const KEM = [...utf8("KEM"), 0, 32];
  const SUITE = [...utf8("HPKE"), 0, 32, 0, 1, 0, 1];
  const extract = (suite, salt, label, secret) => hmac(salt, concat(utf8("HPKE-v1"), suite, utf8(label), secret));
  const expand = async (suite, key, label, info, size) => (await hmac(key, concat([0, size], utf8("HPKE-v1"), suite, utf8(label), info, [1]))).slice(0, size);

  /** Key and nonce from X25519's secret. */
  async function schedule(shared, enc, recipient, info) {
    const none = new Uint8Array(32);
    const secret = await expand(KEM, await extract(KEM, none, "eae_prk", shared), "shared_secret", concat(enc, recipient), 32);
    const context = concat([0], await extract(SUITE, none, "psk_id_hash", []), await extract(SUITE, none, "info_hash", info));
    const inner = await extract(SUITE, secret, "secret", []);
    return [await expand(SUITE, inner, "key", context, 16), await expand(SUITE, inner, "base_nonce", context, 12)];
  }

  /** The encapsulated key and the ciphertext, without associated data; `pair` is for test vectors. */
  async function seal(recipient, info, message, pair) {
    const { publicKey, privateKey } = pair ?? (await crypto.subtle.generateKey("X25519", false, ["deriveBits"]));
    const enc = await settled(crypto.subtle.exportKey("raw", publicKey));
    const shared = await settled(crypto.subtle.deriveBits({ name: "X25519", public: await imported(recipient, "X25519") }, privateKey, 256));
    const [key, iv] = await schedule(shared, enc, recipient, info);
    return concat(enc, await settled(crypto.subtle.encrypt({ name: "AES-GCM", iv }, await imported(key, "AES-GCM", "encrypt"), message)));
  }

  const isInvitation = (invitation) => /^[\w-]{107}$/.test(invitation);

  /** An invitation with a digest in place of its secret, which only the helper gets. */
  async function withoutSecret(invitation) {
    must(isInvitation(invitation), "invitation", "the invitation is malformed: it has 107 letters, digits, - or _");
    const whole = Uint8Array.from(atob(invitation.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt());
    const number = await sha256(concat(utf8("tacit invitation secret v1\0"), whole.slice(0, 16)));
    const shown = btoa(String.fromCharCode(...number.slice(0, 16), ...whole.slice(16)));
    return shown.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  }

  return { isKey, schedule, seal, isInvitation, withoutSecret };
};
