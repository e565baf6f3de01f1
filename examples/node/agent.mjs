// One word from the command line and what it needs:
//   node agent.mjs send TARGET TEXT | request TARGET TEXT | answer TEXT | inbox
// With FENCEPOST_HOME and FENCEPOST_SESSION_ID over the socket; or over TCP by
//   --tls HOST:PORT --certificates FOLDER --credential FILE
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { Mailbox, Refused } from "./fencepost.mjs";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { tls: { type: "string" }, certificates: { type: "string" }, credential: { type: "string" } },
});
const [verb, ...words] = positionals;
const mailbox = values.tls
  ? new Mailbox({
      address: values.tls,
      certificates: values.certificates,
      token: readFileSync(values.credential, "utf8").trim(),
    })
  : Mailbox.fromEnvironment();

const print = (answer) => console.log(JSON.stringify(answer));
try {
  if (verb === "send") print(await mailbox.write("Send", { target: words[0], body: words[1] }));
  else if (verb === "request") print(await mailbox.write("Request", { target: words[0], body: words[1] }));
  else if (verb === "inbox") for await (const record of mailbox.inbox()) print(record);
  else if (verb === "answer") {
    for await (const record of mailbox.inbox(30_000)) {
      if (record.kind !== "RECORD_KIND_REQUEST" || record.answer_state !== "ANSWER_STATE_OPEN") continue;
      const fields = { request_id: record.record_id, status: "REPLY_STATUS_DONE", body: words[0] };
      print(await mailbox.write("Reply", fields));
    }
  } else throw new Error("say send, request, inbox or answer");
} catch (error) {
  console.error(error.message);
  if (error instanceof Refused) console.error(error.hint);
  process.exitCode = error instanceof Refused ? 2 : 1;
} finally {
  mailbox.close();
}
