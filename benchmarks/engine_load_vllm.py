"""vLLM under a load of requests. Called by `engine_load_peers.py` in the environment of vLLM, with a task in JSON.
The answer is another file of JSON.

python benchmarks/engine_load_vllm.py TASK.json
"""

import asyncio
import json
import os
import pathlib
import sys
import time

# By default it takes half of the memory, and leaves one processor out.
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{os.cpu_count() - 1}")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import vllm
from vllm import AsyncEngineArgs, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM


async def follow(engine, number, request):
    """One request from its arrival on: the seconds until each of its tokens, and the tokens."""
    start, seconds, tokens = time.perf_counter(), [], []
    greedy = SamplingParams(temperature=0, max_tokens=request["count"], ignore_eos=True, detokenize=False)
    async for output in engine.generate({"prompt_token_ids": request["prompt"]}, greedy, str(number)):
        tokens = list(output.outputs[0].token_ids)
        seconds += [time.perf_counter() - start] * (len(tokens) - len(seconds))
    return {"seconds": seconds, "tokens": tokens}


async def course(engine, name, requests, arrivals):
    start, running = time.perf_counter(), []
    for number, (request, arrival) in enumerate(zip(requests, arrivals, strict=True)):
        await asyncio.sleep(max(0.0, start + arrival - time.perf_counter()))
        running.append(asyncio.create_task(follow(engine, f"{name}-{number}", request)))
    answers = await asyncio.gather(*running)
    return {"took": time.perf_counter() - start, "answers": answers}


async def answer(task):
    """Returns the courses of the task."""
    sizes = {"max_model_len": task["length"], "max_num_seqs": task["rows"]}
    options = {"dtype": "float32", "enable_prefix_caching": False, "disable_log_stats": True, **sizes}
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model=task["model"], skip_tokenizer_init=True, **options))
    await follow(engine, "first", task["requests"][0])
    courses = [
        await course(engine, number, task["requests"], arrivals) for number, arrivals in enumerate(task["arrivals"])
    ]
    engine.shutdown()
    return {"name": f"vLLM {vllm.__version__}", "courses": courses}


if __name__ == "__main__":
    content = json.loads(pathlib.Path(sys.argv[1]).read_text())
    pathlib.Path(content["answer"]).write_text(json.dumps(asyncio.run(answer(content))))
