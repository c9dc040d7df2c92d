// graphile-worker on PostgreSQL, in its batch mode.
import { load, play, ran, url } from "./play.mjs";

const { makeWorkerUtils, run } = load("graphile-worker");
const SPEC = { identifier: "noop", payload: { sent: 0 } };

await play({
  describe: () => ({
    version: load("graphile-worker/package.json").version,
    configuration: "local queue of 500, 24 jobs at a time, batch delays 0, a pool of 32 for callers",
    measures: ["bulk", "single", "drain", "late", "memory"],
    left: "SELECT count(*) FROM graphile_worker._private_jobs",
  }),
  prepare: async () => {
    const utils = await makeWorkerUtils({ connectionString: url });
    await utils.migrate();
    await utils.release();
  },
  client: async () => {
    const utils = await makeWorkerUtils({ connectionString: url, maxPoolSize: 32 });
    return {
      bulk: async (count) => {
        for (let start = 0; start < count; start += 1000)
          await utils.addJobs(Array(Math.min(1000, count - start)).fill(SPEC));
      },
      one: (sent) => utils.addJob("noop", { sent }),
      close: () => utils.release(),
    };
  },
  work: async () => {
    const worker = {
      connectionString: url, concurrentJobs: 24, maxPoolSize: 10, pollInterval: 1000,
      localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0,
    };
    const runner = await run({ preset: { worker }, taskList: { noop: async ({ sent }) => ran(sent) } });
    await runner.promise;
  },
});
