// Runs ONNX files: node run_onnx.mjs '[{"model": path, "inputs": {name: path of raw int64}, "output": path}, …]'
// and writes what each answers as raw float32. WebAssembly, as in a browser, on one thread.
import { readFileSync, writeFileSync } from "node:fs";
import * as ort from "onnxruntime-web";

ort.env.wasm.numThreads = 1;
for (const { model, inputs, output } of JSON.parse(process.argv[2])) {
  const session = await ort.InferenceSession.create(readFileSync(model), { executionProviders: ["wasm"] });
  const feeds = {};
  for (const [name, path] of Object.entries(inputs)) {
    const ids = new BigInt64Array(new Uint8Array(readFileSync(path)).buffer);
    feeds[name] = new ort.Tensor("int64", ids, [ids.length]);
  }
  const answer = (await session.run(feeds))[session.outputNames[0]].data;
  writeFileSync(output, new Uint8Array(answer.buffer, answer.byteOffset, answer.byteLength));
}
