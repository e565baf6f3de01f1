// A mailbox client for Node: three outcomes, and a lost answer is settled instead of sent again.
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import protobuf from "protobufjs";

const PROTOS = fileURLToPath(new URL("../../protos", import.meta.url));
const CALL_MS_MAX = 10_000;
const SETTLE_MS_MAX = 10_000;
const MESSAGE_BYTES_MAX = 2 * 1024 * 1024;

// Numbers of 64 bits stay text: they do not fit a JavaScript number.
const loaded = loader.loadSync("fencepost/mailbox/v1/mailbox.proto", {
  includeDirs: [PROTOS],
  keepCase: true,
  longs: String,
  enums: String,
  defaults: true,
  oneofs: true,
});
const { MailboxService } = grpc.loadPackageDefinition(loaded).fencepost.mailbox.v1;

const root = new protobuf.Root();
root.resolvePath = (_, target) => join(PROTOS, target);
root.loadSync("fencepost/common/v1/common.proto");
// The standard envelope of details: google.rpc.Status.
protobuf.parse(
  `syntax = "proto3"; package google.rpc;
   message Detail { string type_url = 1; bytes value = 2; }
   message Status { int32 code = 1; string message = 2; repeated Detail details = 3; }`,
  root,
  { keepCase: true },
);
const Status = root.lookupType("google.rpc.Status");
const Refusal = root.lookupType("fencepost.common.v1.Refusal");
const NOT_WRITTEN = root.lookupEnum("fencepost.common.v1.Effect").values.EFFECT_NOT_WRITTEN;

/** The answer was no, and nothing was written. */
export class Refused extends Error {
  constructor(refusal, text) {
    super(`${refusal.reason}: ${text}`);
    this.reason = refusal.reason;
    this.hint = refusal.hint;
    this.mayResend = refusal.mayResend;
  }
}

/** It is proved that nothing was written; the key is spent. */
export class NotWritten extends Error {}

/** It is not known what was written. Never sent again by itself. */
export class Uncertain extends Error {}

function refusalOf(error) {
  const [raw] = error.metadata?.get("grpc-status-details-bin") ?? [];
  if (!raw) return null;
  try {
    for (const detail of Status.decode(raw).details) {
      if (!detail.type_url.endsWith("/fencepost.common.v1.Refusal")) continue;
      const refusal = Refusal.decode(detail.value);
      return refusal.reason && refusal.effect === NOT_WRITTEN ? refusal : null;
    }
  } catch {
    // What cannot be read proves nothing.
  }
  return null;
}

export class Mailbox {
  /** `address`: unix:/path or host:port; `certificates`: a folder of `fencepost certs issue`, for host:port. */
  constructor({ address, token, certificates }) {
    const credentials = certificates
      ? grpc.credentials.createSsl(
          readFileSync(join(certificates, "authority.crt")),
          readFileSync(join(certificates, "client.key")),
          readFileSync(join(certificates, "client.crt")),
        )
      : grpc.credentials.createInsecure();
    this.stub = new MailboxService(address, credentials, {
      "grpc.enable_retries": 0,
      "grpc.enable_http_proxy": 0,
      "grpc.max_receive_message_length": MESSAGE_BYTES_MAX,
    });
    this.metadata = new grpc.Metadata();
    this.metadata.set("authorization", `Bearer ${token}`);
  }

  /** The mailbox of the home and the agent that the environment names. */
  static fromEnvironment(env = process.env) {
    const home = env.FENCEPOST_HOME || join(env.HOME, ".fencepost");
    const file = env.FENCEPOST_CREDENTIAL_FILE || join(home, "agents", env.FENCEPOST_SESSION_ID, "credential");
    return new Mailbox({
      address: readFileSync(join(home, "run", "mailbox.addr"), "utf8").trim(),
      token: readFileSync(file, "utf8").trim(),
    });
  }

  close() {
    this.stub.close();
  }

  /** Calls once. Refused only where the detail says so; any other failure is Uncertain. */
  call(method, request, callMs = CALL_MS_MAX) {
    return new Promise((resolve, reject) => {
      this.stub[method](request, this.metadata, { deadline: Date.now() + callMs }, (error, answer) => {
        if (!error) return resolve(answer);
        const refusal = refusalOf(error);
        reject(refusal ? new Refused(refusal, error.details) : new Uncertain(`status ${error.code}`));
      });
    });
  }

  /** Calls a mutation (Send, Request or Reply); where its answer is lost, asks what became of its key. */
  async write(method, fields) {
    const request = { idempotency_key: `node-${randomUUID()}`, ...fields };
    // Read before the call: only the store that it was made to can say what became of it.
    const { epoch } = await this.call("Describe", {});
    try {
      return await this.call(method, request);
    } catch (error) {
      if (!(error instanceof Uncertain)) throw error;
      return this.settle(epoch, method.toLowerCase(), request, error);
    }
  }

  async settle(epoch, name, request, lost) {
    const until = Date.now() + SETTLE_MS_MAX;
    for (;;) {
      try {
        const found = await this.call("SettleKey", { epoch, [name]: request }, Math.max(1, until - Date.now()));
        if (found.settlement === "SETTLEMENT_WRITTEN" && found[name]) return found[name];
        if (found.settlement === "SETTLEMENT_CANCELLED") throw new NotWritten("nothing was written; take a new key");
        throw lost;
      } catch (error) {
        if (error instanceof NotWritten || error === lost || Date.now() >= until) throw error;
        if (error instanceof Refused && !error.mayResend) throw error.reason === "idempotency_conflict" ? error : lost;
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
    }
  }

  /** Reads everything that is not acknowledged, page by page, then acknowledges it. */
  async *inbox(timeoutMs = 0) {
    let page = await this.call("Receive", { timeout_ms: timeoutMs }, timeoutMs + CALL_MS_MAX);
    for (;;) {
      yield* page.records;
      if (!page.has_more) break;
      page = await this.call("Receive", { cursor: page.next_cursor });
    }
    if (page.ack_cursor) await this.call("Receive", { ack_cursor: page.ack_cursor, limit: 1 });
  }
}
