// Plays one part of a peer that is written for Node, and prints what came of it as JSON: the same parts as play.py.
import { appendFileSync } from "node:fs";
import { createRequire } from "node:module";

export const load = createRequire(process.env.BENCH_NODE + "/");
export const url = process.env.BENCH_URL;
const marks = process.env.BENCH_MARKS;
let ranBefore = false;

export function ran(sent = 0) {
  if (sent === 0 && ranBefore) return;
  const at = (performance.timeOrigin + performance.now()) / 1000;
  if (!ranBefore) appendFileSync(marks, `first ${at}\n`);
  if (sent) appendFileSync(marks, `late ${at - sent}\n`);
  ranBefore = true;
}

async function timed(act) {
  const start = performance.now();
  await act();
  return (performance.now() - start) / 1000;
}

async function single(client, count, callers) {
  await client.one(0);
  const caller = async () => {
    for (let n = 0; n < Math.floor(count / callers); n++) await client.one(0);
  };
  return timed(() => Promise.all(Array.from({ length: callers }, caller)));
}

async function trickle(client, count) {
  return timed(async () => {
    for (let n = 0; n < count; n++) {
      await new Promise((resolve) => setTimeout(resolve, 30 + 20 * Math.random()));
      await client.one((performance.timeOrigin + performance.now()) / 1000);
    }
  });
}

export async function play(peer) {
  const [verb, ...args] = process.argv.slice(2);
  if (verb === "work") return peer.work();
  if (verb === "describe") return console.log(JSON.stringify(peer.describe()));
  if (verb === "prepare") {
    await peer.prepare();
    return console.log("null");
  }
  const client = await peer.client();
  const acts = {
    bulk: () => timed(() => client.bulk(Number(args[0]))),
    single: () => single(client, Number(args[0]), Number(args[1])),
    trickle: () => trickle(client, Number(args[0])),
  };
  const answer = await acts[verb]();
  await client.close();
  console.log(JSON.stringify(answer));
}
