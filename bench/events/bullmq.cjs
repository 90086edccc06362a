// Delayed jobs due at one instant; each POSTs a signed payload, as Tocsin's deliveries do. One worker process, keep-alive connections.
// node bullmq.cjs FOLDER REDIS_PORT RECEIVER_PORT COUNT DUE_MS CONCURRENCY PAYLOAD
const [folder, redisPort, receiverPort, count, due, concurrency, payload] = process.argv.slice(2);
const { Queue, Worker } = require(require.resolve("bullmq", { paths: [folder] }));
const http = require("node:http");
const { createHmac } = require("node:crypto");

const connection = { host: "127.0.0.1", port: Number(redisPort), maxRetriesPerRequest: null };
const agent = new http.Agent({ keepAlive: true, maxSockets: Number(concurrency) });
const secret = Buffer.from("0123456789abcdef0123456789abcdef");
const dueText = new Date(Number(due)).toISOString();

function deliver(id, body) {
  const now = Date.now();
  const seconds = Math.floor(now / 1000);
  const signature = createHmac("sha256", secret).update(`${id}.${seconds}.`).update(body).digest("base64");
  return new Promise((resolve, reject) => {
    const request = http.request(
      {
        host: "127.0.0.1",
        port: Number(receiverPort),
        method: "POST",
        path: "/",
        agent,
        headers: {
          "content-type": "application/json",
          "content-length": Buffer.byteLength(body),
          "user-agent": "bullmq",
          "ce-specversion": "1.0",
          "ce-type": "tocsin.event.due",
          "ce-source": "/tenants/demo/channels/default",
          "ce-id": id,
          "ce-time": dueText,
          "ce-tocsindue": dueText,
          "ce-tocsinfired": new Date(now).toISOString(),
          "ce-tocsinlatems": String(Math.max(0, now - Number(due))),
          "ce-tocsinattempt": "1",
          "webhook-id": id,
          "webhook-timestamp": String(seconds),
          "webhook-signature": `v1,${signature}`,
        },
      },
      (response) => {
        response.resume();
        response.on("end", () => (response.statusCode < 300 ? resolve() : reject(new Error(String(response.statusCode)))));
      },
    );
    request.on("error", reject);
    request.end(body);
  });
}

async function main() {
  const queue = new Queue("herd", { connection });
  await queue.waitUntilReady();
  for (let at = 0; at < Number(count); at += 1000) {
    const jobs = [];
    for (let number = at; number < Math.min(at + 1000, Number(count)); number++) {
      jobs.push({
        name: "deliver",
        data: { payload },
        opts: { delay: Math.max(0, Number(due) - Date.now()), removeOnComplete: true, jobId: `j${number}` },
      });
    }
    await queue.addBulk(jobs);
  }
  if (Date.now() > Number(due) - 1000) throw new Error("the jobs were not in before their time");
  let done = 0;
  const worker = new Worker("herd", (job) => deliver(job.id, job.data.payload), { connection, concurrency: Number(concurrency) });
  worker.on("completed", async () => {
    if (++done === Number(count)) {
      await worker.close();
      await queue.close();
      process.exit(0);
    }
  });
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
