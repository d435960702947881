"""GPT-2 of transformers, with random weights: generates text, and says how long each time took in ms."""
import sys, time, torch, transformers
torch.manual_seed(0)
model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).half().cuda().eval()
ids = torch.randint(0, 50000, (1, 32), device="cuda")
tokens, times = int(sys.argv[1]), int(sys.argv[2])
def generate(n):
    with torch.no_grad():
        model.generate(ids, max_new_tokens=n, min_new_tokens=n, do_sample=False, pad_token_id=0)
    torch.cuda.synchronize()
generate(8)
for _ in range(times):
    begin = time.perf_counter()
    torch.cuda.nvtx.range_push("generate")
    generate(tokens)
    torch.cuda.nvtx.range_pop()
    print("ms", 1000 * (time.perf_counter() - begin), flush=True)
