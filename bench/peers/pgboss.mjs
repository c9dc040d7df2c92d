// pg-boss on PostgreSQL.
import { load, play, ran, url } from "./play.mjs";

const { PgBoss } = load("pg-boss");

async function started(options = {}) {
  const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false, max: 10, ...options });
  boss.on("error", console.error);
  await boss.start();
  return boss;
}

await play({
  describe: () => ({
    version: load("pg-boss/package.json").version,
    configuration: "batches of 500, 2 at a time, one handler call a batch, NOTIFY, a pool of 32 for callers",
    measures: ["bulk", "single", "drain", "late", "memory"],
    left: "SELECT count(*) FROM pgboss.job WHERE name = 'noop' AND state < 'completed'",
  }),
  prepare: async () => {
    const boss = await started();
    await boss.createQueue("noop", { notify: true });
    await boss.stop({ graceful: false });
  },
  client: async () => {
    const boss = await started({ max: 32 });
    return {
      bulk: async (count) => {
        for (let start = 0; start < count; start += 1000)
          await boss.insert("noop", Array(Math.min(1000, count - start)).fill({ data: { sent: 0 } }));
      },
      one: (sent) => boss.send("noop", { sent }),
      close: () => boss.stop({ graceful: false }),
    };
  },
  work: async () => {
    const boss = await started({ useListenNotify: true });
    const options = { batchSize: 500, localConcurrency: 2, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true };
    await boss.work("noop", options, async (jobs) => jobs.forEach((job) => ran(job.data.sent)));
    process.once("SIGTERM", () => boss.stop({ graceful: false }).then(() => process.exit(0)));
  },
});
