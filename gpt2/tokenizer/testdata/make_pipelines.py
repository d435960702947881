#!/usr/bin/env python3
"""Makes pipelines.json: small tokenizers of many forms, and what their own libraries make of hostile texts.

    python3 gpt2/tokenizer/testdata/make_pipelines.py            # writes pipelines.json beside this script
    python3 gpt2/tokenizer/testdata/make_pipelines.py --live     # compares with random texts, and writes nothing there

Needs `tokenizers`, `transformers` and `sentencepiece` (parity/requirements.txt). The first of them is the reference of
a tokenizer.json, the second of what lies in a folder, the third of a .model. --live needs Go too.

pipelines.json has `texts`, and for each tokenizer its `files` by name, base64 where `binary`, and a case for each text:
its ids, if they are known, and in `decoded` what they decode to, where that is neither the text nor has U+FFFD in it.
"""

import argparse
import base64
import io
import json
import os
import pathlib
import random
import subprocess
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import sentencepiece
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers as nz, pre_tokenizers as pre, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
EOT = "<|endoftext|>"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"

CORPUS = ["the quick brown fox jumps over the lazy dog and runs away from it all day long. " * 3,
          "What light through yonder window breaks? It is the east, and Juliet is the sun! 12 34, don't we'll",
          "caf\u00e9 na\u00efve \u00fcber stra\u00dfe \u6771\u4eac\u306f\u65e5\u672c\u306e\u9996\u90fd\u3067\u3059\u3002 "
          "\u4eca\u65e5\u306f\u826f\u3044\u5929\u6c17\u3067\u3059\u306d\u3002 \u4f60\u597d\uff0c\u4e16\u754c\u3002"] * 8

TEXTS = [
    "", " ", "   ", "\n", "the quick fox", " the  Quick   FOX!\n", "What light, 12345 dogs? don't WE'LL 3rd", "a" * 70, " " * 40 + "x" + " " * 5,
    "caf\u00e9 cafe\u0301 \u00c5\u212b \ufb01ne \u00bd\u00b2 \u2460 \uff21\uff42\uff11 \u1e9b\u0323 e\u0323\u0301\u0302", "\u0130 \u00df\u1e9e \u03a3\u03c2 \u212a \u01c5 '\u017f",
    "\u6771\u4eac\u306f\u65e5\u672c\u3002\u4f60\u597d\uff0c\u4e16\u754c \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab \u30ab\u3099\uff76\uff9e \u4eca\u65e5a\u6c17b",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f\u200b\ufeff", "x\0y\x1b[31m\x7f\u0085\u00ad\u200e\u2028z\ufffd",
    "\t a\u00a0b\u3000c\u2003 d\r\n\r\ne \r", "\u2581\u2581a \u2581b_c ##d <0x41><0xE3> <unk>", "1,234.5 \u0661\u0662 \u0e51 \u2167 \u3007 \U0001d7d8",
    "(a) [b] {c}, \u00bfd? \u00abe\u00bb \u201cf\u201d g\u2014h $i ^j` \u00a7k+l=m", f"a{EOT}b {EOT} c<s>d</s>[CLS] x[MASK]<pad>", "\u1c89\ua7cb\u0897\U000323b0 \U00010d40\U00010d50 \u08d3\u1ab0\u0301",
    "a" + "\u0301\u0316" * 40 + "b", "The Caf\u00c9 \u00c9T\u00c9 \u0416\u0419\u0419 \u05e9\u05c1\u05b8 \u0928\u093c\u093f",
]
SNIPPETS = sorted({c for t in TEXTS for c in t} | {w for t in TEXTS + CORPUS[:3] for w in t.split(" ")} | {" ", "  ", "'s", "'RE", "\u0344", "\u0958", "\u0f73", "\u1109\u1166", EOT})


def whole(t):
    return {"tokenizer.json": t.to_str()}


def by_file(files):
    t = Tokenizer.from_str(files["tokenizer.json"])
    return (lambda s: t.encode(s).ids), (lambda ids: t.decode(ids, skip_special_tokens=False))


def by_folder(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            pathlib.Path(folder, name).write_text(data, newline="")
        t = transformers.AutoTokenizer.from_pretrained(folder)
    return (lambda s: t(s)["input_ids"]), (lambda ids: t.decode(ids, clean_up_tokenization_spaces=False))


def by_piece(files):
    sp = sentencepiece.SentencePieceProcessor(model_proto=files[next(n for n in files if n.endswith(".model"))])
    special = [sp.id_to_piece(i) for i in range(len(sp)) if sp.is_control(i) or sp.is_unknown(i)]
    return (lambda s: None if any(t in s for t in special) else sp.encode(s)), sp.decode


def bpe(norm=None, split=None, post=None, decoder=decoders.ByteLevel(), size=330, alphabet=False, special=(EOT,), trainer={}, **options):
    t = Tokenizer(models.BPE(**options))
    if norm:
        t.normalizer = norm
    t.pre_tokenizer = split or pre.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), show_progress=False,
                                                      initial_alphabet=sorted(pre.ByteLevel.alphabet()) if alphabet else [], **trainer))
    if decoder:
        t.decoder = decoder
    if post:
        t.post_processor = post
    return t


def seq(*parts):
    return pre.Sequence(list(parts))


def byte_level(*parts):
    return seq(*parts, pre.ByteLevel(add_prefix_space=False, use_regex=False))


def words(model, trainer, norm=None, split=None, decoder=None, post=None, size=120):
    t = Tokenizer(model)
    if norm:
        t.normalizer = norm
    if split:
        t.pre_tokenizer = split
    t.train_from_iterator(CORPUS, trainer(vocab_size=size, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    if decoder:
        t.decoder = decoder
    if post:
        t.post_processor = post
    return t


def unigram(norm=None, split=pre.Metaspace(), decoder=decoders.Metaspace(), byte_fallback=False, size=150):
    t = Tokenizer(models.Unigram())
    if norm:
        t.normalizer = norm
    if split:
        t.pre_tokenizer = split
    more = [f"<0x{b:02X}>" for b in range(256)] if byte_fallback else []
    t.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=size + len(more), special_tokens=["<unk>", "<s>", "</s>"] + more, unk_token="<unk>", show_progress=False))
    t.decoder = decoder
    data = json.loads(t.to_str())
    data["model"]["byte_fallback"] = byte_fallback
    data["added_tokens"] = data["added_tokens"][:3]
    return Tokenizer.from_str(json.dumps(data))


def piece(kind, **options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter([line for line in CORPUS]), model_writer=out, model_type=kind,
                                             vocab_size=options.pop("vocab_size", 160), hard_vocab_limit=False, num_threads=1, minloglevel=2, **options)
    return out.getvalue()


LLAMA = dict(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
LLAMA_DECODER = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def files_of(rules):
    """Yields for each tokenizer its name, its files and the function that makes its reference."""
    def json_rows():
        yield "partial alphabet", bpe(size=90)
        yield "partial alphabet, unk", bpe(size=90, unk_token=EOT)
        yield "partial alphabet, fused unk", bpe(size=90, unk_token=EOT, fuse_unk=True)
        yield "NFC", bpe(nz.NFC(), alphabet=True)
        yield "NFKC, Lowercase", bpe(nz.Sequence([nz.NFKC(), nz.Lowercase()]), alphabet=True)
        yield "NFD, StripAccents", bpe(nz.Sequence([nz.NFD(), nz.StripAccents()]), alphabet=True)
        yield "NFKD, Strip", bpe(nz.Sequence([nz.NFKD(), nz.Strip()]), alphabet=True)
        yield "Strip left, Prepend", bpe(nz.Sequence([nz.Strip(left=True, right=False), nz.Prepend("_")]), alphabet=True)
        yield "Replace", bpe(nz.Sequence([nz.Replace("the", "THE"), nz.Replace(Regex(r"\s+"), " ")]), alphabet=True)
        yield "Digits", bpe(split=seq(pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)), alphabet=True)
        yield "Digits together", bpe(split=seq(pre.Digits(individual_digits=False), pre.ByteLevel(add_prefix_space=True)), alphabet=True)
        yield "Split GPT-2", bpe(split=byte_level(pre.Split(Regex(GPT2), "isolated")), alphabet=True)
        yield "Split cl100k", bpe(split=byte_level(pre.Split(Regex(CL100K), "removed", invert=True)), alphabet=True)
        for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
            yield "Split " + behavior, bpe(split=byte_level(pre.Split(Regex(r"\w|\d+|\p{Han}(?=\p{Hiragana})"), behavior)), alphabet=True, size=270)
        yield "Split string", bpe(split=byte_level(pre.Split(" ", "merged_with_next"), pre.Punctuation("merged_with_previous")), alphabet=True, size=270)
        yield "ignore_merges", bpe(nz.NFC(), alphabet=True, ignore_merges=True)
        yield "TemplateProcessing", bpe(post=processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing("<s> $A </s>", "$A $B", [("<s>", 0), ("</s>", 1)])]),
                                        alphabet=True, special=("<s>", "</s>", EOT), size=270)
        yield "RobertaProcessing", bpe(post=processors.RobertaProcessing(("</s>", 1), ("<s>", 0)), alphabet=True, special=("<s>", "</s>"), size=270)
        t = bpe(nz.Lowercase(), alphabet=True, size=270)
        t.add_tokens([AddedToken("Fox", normalized=True), AddedToken("Quick", normalized=False), AddedToken("b", single_word=True), AddedToken(",", rstrip=True, lstrip=True)])
        yield "added tokens, normalized", t
        yield "normalizer ByteLevel", bpe(nz.ByteLevel(), split=pre.Whitespace(), size=150)
        yield "BPE of characters", bpe(split=pre.Whitespace(), decoder=None, special=("[UNK]",), unk_token="[UNK]", size=130)
        yield "BPE with prefix", bpe(split=pre.WhitespaceSplit(), decoder=decoders.WordPiece("##", cleanup=True), special=("[UNK]",), unk_token="[UNK]",
                                     continuing_subword_prefix="##", size=130, trainer=dict(continuing_subword_prefix="##"))
        yield "BPE with suffix", bpe(split=pre.BertPreTokenizer(), decoder=None, special=("[UNK]",), unk_token="[UNK]", end_of_word_suffix="</w>", size=130,
                                     trainer=dict(end_of_word_suffix="</w>"))
        yield "byte fallback", bpe(nz.Sequence([nz.Prepend("\u2581"), nz.Replace(" ", "\u2581")]), split=pre.Split("\u0000", "isolated"), decoder=LLAMA_DECODER,
                                   special=["<unk>", "<s>", "</s>"] + BYTES, size=360, **LLAMA)
        yield "byte fallback, Metaspace first", bpe(split=pre.Metaspace(prepend_scheme="first", split=False), decoder=LLAMA_DECODER,
                                                    special=["<unk>", "<s>", "</s>"] + BYTES, size=360, **LLAMA)
        yield "WordLevel", words(models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer, nz.Lowercase(), pre.Whitespace())
        yield "WordLevel of characters", words(models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer, None, pre.Split(Regex(r"[\s\S]"), "isolated"), decoders.Fuse())
        yield "WordPiece", words(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20), trainers.WordPieceTrainer, nz.BertNormalizer(), pre.BertPreTokenizer(),
                                 decoders.WordPiece(), processors.TemplateProcessing("[CLS] $A [SEP]", "$A $B", [("[CLS]", 1), ("[SEP]", 2)]))
        yield "WordPiece, cased", words(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer,
                                        nz.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False),
                                        seq(pre.WhitespaceSplit(), pre.Punctuation()), decoders.WordPiece(cleanup=False))
        yield "Unigram", unigram(nz.Sequence([nz.Precompiled(charsmap(rules)), nz.Replace(Regex(" {2,}"), " ")]))
        yield "Unigram, byte fallback", unigram(split=pre.Metaspace(prepend_scheme="never", split=False), decoder=decoders.Sequence(
            [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never")]), byte_fallback=True)
        yield "T5", unigram(split=seq(pre.WhitespaceSplit(), pre.Metaspace(prepend_scheme="always")))

    for name, t in json_rows():
        files = whole(t)
        data = json.loads(files["tokenizer.json"])
        for token in data["added_tokens"]:  # the bytes are no added tokens
            if token["content"] in BYTES:
                data["added_tokens"] = [a for a in data["added_tokens"] if a["content"] not in BYTES]
                break
        yield name, {"tokenizer.json": json.dumps(data)}, by_file

    byte = json.loads(bpe(alphabet=True).to_str())
    vocab, merges = byte["model"]["vocab"], "#version: 0.2\n" + "\n".join(" ".join(m) for m in byte["model"]["merges"]) + "\n"
    config = json.dumps({"model_type": "gpt2"})
    pair = {"vocab.json": json.dumps(vocab), "merges.txt": merges, "config.json": config}

    def with_config(files, **fields):
        return {"config.json": config} | files | {"tokenizer_config.json": json.dumps(fields)}

    yield "add_bos_token", with_config(pair, tokenizer_class="GPT2Tokenizer", add_bos_token=True), by_folder
    yield "add_eos_token", with_config(pair, tokenizer_class="GPT2Tokenizer", add_eos_token=True), by_folder
    yield "add_bos_token beside tokenizer.json", with_config({"tokenizer.json": json.dumps(byte)}, tokenizer_class="GPT2Tokenizer", add_bos_token=True), by_folder
    gap = vocab | {"<|pad|>": len(vocab) + 27}
    yield "gap in vocab.json", with_config(pair | {"vocab.json": json.dumps(gap)}, tokenizer_class="GPT2Tokenizer", pad_token="<|pad|>"), by_folder
    far = json.loads(json.dumps(byte))
    far["added_tokens"].append(dict(id=len(vocab) + 43, content="[MASK]", single_word=False, lstrip=False, rstrip=False, normalized=False, special=True))
    yield "added id after a gap", with_config({"tokenizer.json": json.dumps(far)}, tokenizer_class="PreTrainedTokenizerFast"), by_folder
    plain = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u4eca", "\u65e5", "\u4f60", "\u597d", "\u6771", "\u4eac", "\u306f", "the", "##e", "t", "##h", "quick", "a",
             "##a", "\uff0c", "\u3002", ",", "1", "##2", "##3", "cafe", "caf\u00e9", "##\u6c17", "\u6c17"]
    for name, fields in {"": {}, ", cased": dict(do_lower_case=False), ", accents": dict(strip_accents=False), ", no Chinese": dict(tokenize_chinese_chars=False, mask_token="quick")}.items():
        yield "BertTokenizer" + name, with_config({"vocab.txt": "\r\n".join(plain) if name else "\n".join(plain) + "\n"}, tokenizer_class="BertTokenizer", **fields), by_folder

    yield "spiece.model, unigram", {"spiece.model": piece("unigram", normalization_rule_tsv=rules)}, by_piece
    yield "spiece.model, byte fallback", {"spiece.model": piece("unigram", byte_fallback=True, vocab_size=420, normalization_rule_name="identity", add_dummy_prefix=False,
                                                                 remove_extra_whitespaces=False, user_defined_symbols=["quick", "\u65e5\u672c"])}, by_piece
    yield "tokenizer.model, BPE", {"tokenizer.model": piece("bpe", normalization_rule_tsv=rules, user_defined_symbols=["fox"], control_symbols=["<pad>"])}, by_piece
    yield "tokenizer.model, BPE, byte fallback", {"tokenizer.model": piece("bpe", byte_fallback=True, vocab_size=420, split_digits=True, normalization_rule_name="identity")}, by_piece


def rules_file(folder):
    """A small table of what becomes of some strings, for SentencePiece, whose own tables have a quarter of a megabyte."""
    pairs = {"\uff21": "A", "\uff42": "b", "\ufb01": "fi", "\u00bd": "1\u20442", "e\u0301": "\u00e9", "\u30ab\u3099": "\u30ac", "\u3000": " ", "\u00a0": " ", "\t": " ",
             "\n": " ", "\U0001f1e9\U0001f1ea": "DE", "\u0301": "'", "\u2764\ufe0f": "<3", "\u2764": "love", "\u00df": "ss"}
    path = pathlib.Path(folder, "rules.tsv")
    path.write_text("".join("\t".join(" ".join(f"{ord(c):X}" for c in text) for text in pair) + "\n" for pair in pairs.items()))
    return str(path)


def charsmap(rules):
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(piece("unigram", normalization_rule_tsv=rules))
    return proto.normalizer_spec.precompiled_charsmap


def cases(files, reference, texts):
    encode, decode = reference(files)
    for text in texts:
        ids = encode(text)
        if ids is None:  # special tokens in a text are text to SentencePiece, but not to transformers and here
            yield {}
            continue
        decoded = decode(ids)
        yield {"ids": ids} if decoded == text or "\ufffd" in decoded else {"ids": ids, "decoded": decoded}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", action="store_true", help="compare with random texts")
    parser.add_argument("--count", type=int, default=400, help="random texts for --live")
    parser.add_argument("--characters", action="store_true", help="with --live: each character up to U+1FFFF as well")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "pipelines.json")
    args = parser.parse_args()
    texts = TEXTS
    if args.live:
        r = random.Random(args.seed)
        assigned = [c for c in range(0x20000) if not 0xD800 <= c <= 0xDFFF]
        texts = ["".join(r.choice(SNIPPETS) if r.random() < 0.85 else chr(r.choice(assigned)) for _ in range(r.choice([1, 3, 10, 40])))
                 for _ in range(args.count)]
        if args.characters:
            texts += ["".join(f"a{c}{c}\u0301b {c}1" for c in map(chr, assigned[i:i + 64])) for i in range(0, len(assigned), 64)]
    rows = []
    folder = tempfile.TemporaryDirectory()
    for name, files, reference in files_of(rules_file(folder.name)):
        row = {"name": name, "files": {}, "binary": {}, "cases": list(cases(files, reference, texts))}
        for file, data in files.items():
            if isinstance(data, bytes):
                row["binary"][file] = base64.b64encode(data).decode()
            else:
                row["files"][file] = data
        rows.append(row)
    lines = ['{"texts": ' + json.dumps(texts) + ',\n"tokenizers": [']
    lines.append(",\n".join(json.dumps(row, separators=(",", ":")) for row in rows))
    out = "\n".join(lines) + "\n]}\n"
    if not args.live:
        args.out.write_text(out)
        return
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(out)
        file.flush()
        subprocess.run(["go", "test", "-count=1", "-run", "^TestPipelines$", ".", "-pipelines", file.name], cwd=HERE.parent, check=True)


if __name__ == "__main__":
    main()
