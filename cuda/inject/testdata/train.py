"""Training steps of a small GPT-2 of transformers in bfloat16, with NVTX ranges."""
import torch, transformers
torch.manual_seed(0)
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=4)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
ids = torch.randint(0, 50000, (4, 256))
for step in range(4):
    with torch.cuda.nvtx.range(f"step {step}"):
        batch = ids.pin_memory().cuda(non_blocking=True)
        with torch.cuda.nvtx.range("forward"), torch.autocast("cuda", torch.bfloat16):
            loss = model(batch, labels=batch).loss
        with torch.cuda.nvtx.range("backward"):
            loss.backward()
        with torch.cuda.nvtx.range("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
    print(step, loss.item())
