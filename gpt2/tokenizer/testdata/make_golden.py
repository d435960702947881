#!/usr/bin/env python3
"""Makes what this package takes from Hugging Face's `tokenizers`: ../classes.txt and the golden files beside this
script. Needs Go, and Python with `tokenizers`; run it from anywhere:

    python3 gpt2/tokenizer/testdata/make_golden.py

GPT-2's vocabulary is not downloaded: the Go package writes it (go test -export), and `tokenizers` reads that.
TestGPT2Vocabulary compares what is written with the hashes of OpenAI's own files.

golden.json    texts with their ids, for GPT-2's vocabulary and for the byte alphabet; hashes of the ids of random
               texts, of every Unicode character in several contexts, and of texts of a megabyte
options/*/     small tokenizers with options that GPT-2 does not use, and golden.json with texts and their ids
"""

import hashlib
import json
import pathlib
import shutil
import subprocess
import tempfile
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
EOT = "<|endoftext|>"
CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def digest(ids):
    """The first 16 hexadecimal digits of the SHA-256 of ids as little-endian 32-bit integers."""
    return hashlib.sha256(b"".join(i.to_bytes(4, "little") for i in ids)).hexdigest()[:16]


class Random:
    """SplitMix64 (Steele et al., 2014), so that the Go test draws the same numbers."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    def below(self, n):
        return self.next() % n


# ---------------------------------------------------------------------------------------------- character classes

def matching(pattern):
    """The characters that match pattern in the engine of the ByteLevel pre-tokenizer (Oniguruma)."""
    text = "".join(map(chr, CHARACTERS))
    left = set()
    for _, (start, end) in pre_tokenizers.Split(Regex(pattern + "+"), "removed").pre_tokenize_str(text):
        left.update(CHARACTERS[start:end])
    return set(CHARACTERS) - left


def word_characters():
    r"""The characters that are \w in the engine that looks for single_word tokens (Rust's regex).

    The Whitespace pre-tokenizer splits by \w+|[^\w\s]+ in that engine: after an "a", a word character stays in the
    same piece."""
    text = "".join("a" + chr(c) + " " for c in CHARACTERS)
    word = set()
    for _, (start, end) in pre_tokenizers.Whitespace().pre_tokenize_str(text):
        if end - start == 2:
            word.add(CHARACTERS[start // 3])
    return word


def split_by(pre_tokenizer):
    """The characters at which a pre-tokenizer splits a word."""
    return {c for c in CHARACTERS if len(pre_tokenizer.pre_tokenize_str("a" + chr(c) + "a")) > 1}


def changed(normalizer):
    """What a normalizer makes of the characters that it changes."""
    pairs = ((c, normalizer.normalize_str(chr(c))) for c in CHARACTERS)
    return {c: text for c, text in pairs if text != chr(c)}


def later(c):
    """Whether tables of normal forms that are newer than the library's know more of a character than the library does."""
    text = chr(c)
    if unicodedata.category(text) == "Cn":
        return True
    forms = [(f, getattr(normalizers, f)()) for f in ("NFC", "NFD", "NFKC", "NFKD")]
    texts = [text, f"a{text}\u0334", f"a\u0345{text}"]
    return any(n.normalize_str(t) != unicodedata.normalize(f, t) for f, n in forms for t in texts)


def bert(**options):
    return normalizers.BertNormalizer(**dict(dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False), **options))


def write_classes():
    letter, number, space = matching(r"\p{L}"), matching(r"\p{N}"), matching(r"\s")
    assert not letter & number and not letter & space and not number & space
    sets = {0x4: word_characters(), 0x8: split_by(pre_tokenizers.Punctuation()),
            0x10: {c for c, text in changed(bert(clean_text=True)).items() if text == ""},
            0x20: {c for c, text in changed(normalizers.StripAccents()).items() if text == ""},
            0x40: {c for c, text in changed(bert(strip_accents=True)).items() if text == ""},
            0x80: split_by(pre_tokenizers.Digits()), 0x100: set(changed(bert(handle_chinese_chars=True))),
            0x200: {c for c in CHARACTERS if later(c)}}

    def of(c):
        kind = 1 if c in letter else 2 if c in number else 3 if c in space else 0
        return kind | sum(bit for bit, members in sets.items() if c in members)

    runs, last = [], None
    for c in range(0x110000):
        if of(c) != last:
            last = of(c)
            runs.append(c << 12 | last)
    lines = [" ".join(f"{run:X}" for run in runs[i:i + 10]) for i in range(0, len(runs), 10)]
    (HERE.parent / "classes.txt").write_text("\n".join(lines) + "\n")


# -------------------------------------------------------------------------------------------------------- corpus

CORPUS = {
    "empty": "",
    "plain": "Hello world",
    "shakespeare": "ROMEO:\nBut, soft! what light through yonder window breaks?\nIt is the east, and Juliet is the sun.\n",
    "spaces 1": " ", "spaces 2": "  ", "spaces 3": "   ", "spaces then word": "   x", "word then spaces": "x   ",
    "spaces between": "a b  c   d    e     f",
    "spaces long": " " * 100 + "x" + " " * 33 + "\n",
    "tabs": "\t\tx\t \ty \t z\t",
    "newlines": "\n", "blank lines": "a\n\nb\n\n\nc\n\n\n\n", "newline space": "a\n b\n  c \n d\n \n",
    "crlf": "one\r\ntwo\r\n\r\nthree\r\n  four\r\r\n\n\r",
    "code": "def f(x):\n    if x > 0:\n\t\treturn x  # ok\n    return {'a': [1, 2.5e-3], \"b\": None}\n",
    "contractions": "I'm you're he's we've I'll I'd don't it's can't o'clock 'tis y'all'd've rock'n'roll",
    "contractions upper": "I'M YOU'RE HE'S WE'VE I'LL I'D DON'T IT'S",
    "contractions mixed": "'S 's 'Re 're 'rE 'vE 'Ll 'lL 'D 'd 'T't'm'M",
    "contractions cut short": "' 'r 'v 'l 'r e 'l l '",
    "contractions odd": "''s '''re s's 's's's 1's !'s 'sa 'rea 'llama 'd1 't't' 'ré 'lл",
    "contractions after space": "a 's b 't c 're d  've \n'm\t'll \u00a0'd",
    "apostrophe curly": "I\u2019m you\u2019re he\u2019s \u2018quoted\u2019 don\u02bct don\u0301't \uff07s",
    "punctuation": "?!... --- \u2014\u2013 (a) [b] {c} <d> /e\\ |f| ~`@#$%^&*_+= \"g\" ,;:",
    "punctuation spaces": " ! ? .  ,   ;  :x",
    "numbers": "0 1 12 123 1234 12345 1,234,567.89 0x1F 1e10 3.14159 2nd a1b2 007 v1.2.3 1234567890123456789",
    "numbers scripts": "\u0661\u0662\u0663 \u06f4\u06f5 \u0967\u0968\u0969 \u0e51\u0e52 \u4e00\u4e8c\u4e09 \uff11\uff12 \U0001d7ce\U0001d7d8 \u0be7",
    "numbers other": "\u2160\u2161\u2162 \u00bd\u00bc \u00b2\u00b3\u2074 \u2460\u2461 \u3007 \u0bf0 \U00010107 \u216b1\u00bda",
    "latin": "na\u00efve caf\u00e9 \u00fcber stra\u00dfe \u00c5ngstr\u00f6m \u0141\u00f3d\u017a \u0130stanbul \u00aa\u00ba",
    "greek cyrillic": "\u039a\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1 \u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0451\u0436",
    "hebrew arabic": "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd \u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627 \u0644\u0627 \u200f\u200e",
    "indic": "\u0928\u092e\u0938\u094d\u0924\u0947 \u0bb5\u0ba3\u0b95\u0bcd\u0b95\u0bae\u0bcd \u0995\u09cd\u09b7 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "cjk": "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f\u3001\u30ab\u30bf\u30ab\u30ca\u30fc \uc548\ub155 \u1112\u1161\u11ab \U00020000\U0002a6df",
    "combining": "e\u0301 a\u0308\u0323 n\u0303o \u0301x  \u0301 Z\u0351\u036b\u0343a\u0321\u034elgo o\u20dd 1\u20e3",
    "emoji": "\U0001f600 \U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \u2764\ufe0f \U0001f1e9\U0001f1ea\U0001f1eb 1\ufe0f\u20e3 \U0001f3f4\U000e0067\U000e0062\U000e007f",
    "emoji words": "ok\U0001f600ok \U0001f600ok  \U0001f600 5\U0001f6005's",
    "symbols": "\u20ac\u00a3\u00a5 \u00a9\u00ae\u2122 \u2200x\u2208\u2115 \u2190\u2192 \u2588\u2591 \u266b \u00b1\u00d7\u00f7 \u00b5\u00b6",
    "white space": "".join(f"a{chr(c)}b {chr(c)}{chr(c)}c{chr(c)} " for c in sorted(
        {9, 10, 11, 12, 13, 0x1c, 0x1d, 0x1e, 0x1f, 0x85, 0xa0, 0x1680, 0x180e, *range(0x2000, 0x2010), 0x2028, 0x2029,
         0x202f, 0x205f, 0x2060, 0x3000, 0xfeff})),
    "white space runs": " \u00a0 x\u00a0 y \u00a0z\u3000\u3000w \u2028v\u2029 u\u0085\u0085t \u180es\ufeffr\u200bq",
    "control": "".join(map(chr, range(0x20))) + "\x7f" + "".join(map(chr, range(0x80, 0xa0))) + "x\0y \0z\x1b[31m",
    "noncharacters": "\ufffd \ufffe\uffff \U0010ffff \ue000 \U000f0000 \u2427",
    "width": "\uff21\uff42\uff43 \uff11\uff12 \uff01 \uff76\uff9e \u3000\uff21",
    "new scripts": "\U0001e4d0\U00010d40\U00010d50 \U0001e5d0\U0001ccf0 \U00016d40\U00011de0 \u1c89\ua7da \U0002ebf0\U000323b0",
    "special": EOT, "special twice": EOT + EOT, "special in text": f"a {EOT} b{EOT}\n{EOT}  c",
    "special words": f"{EOT}'s {EOT}re'{EOT}s 1{EOT}2",
    "special cut": "<|endoftext|", "special almost": "<|endoftext |> <|Endoftext|> <<|endoftext|>> <|endoftext<|endoftext|>",
    "special twin": "<|im_start|>user<|im_end|><|pad|></s>",
    "urls": "https://example.com/a?b=c&d=%20e#f mailto:x@y.org C:\\dir\\file.txt ~/.bashrc",
    "names": "SolidGoldMagikarp StreamerBot TPPStreamerBot RandomRedditorWithNo \u30fc\u30c6\u30a3",
    "case": "aB AbC ABC abc iPhone McDonald HTTPServer camelCaseWord snake_case_word",
    "repeats": "a" * 49 + " " + "ab" * 30 + " " + "=" * 80 + " " + "ha" * 24 + " " + "." * 47 + "\n" * 48,
    "byte words": "".join(map(chr, range(0x20, 0x180))),
}

SNIPPETS = [
    " ", " ", " ", "  ", "   ", "\n", "\n", "\r\n", "\t", "\u00a0", "\u2003", "\u0085", "\u3000", "\u180e", "\u200b", "\ufeff", "\u2028",
    "'", "'", "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'L", "\u2019s", "\"", ".", ",", "!", "?!", "...", "--", "(", ")", "_", "/",
    "a", "e", "s", "t", "l", "re", "th", "he", "The", "and", "ing", "tion", "Hello", "world", "Shakespeare", "antidisestablishmentarianism",
    "0", "1", "23", "456", "1999", "\u00bd", "\u00b2", "\u0663", "\u0e55", "\u216b", "\U0001d7d9",
    "\u00e9", "e\u0301", "\u0301", "\u00df", "\u0416", "\u03a9", "\u05d0", "\u0639", "\u0928\u093f", "\u4e2d", "\u6587", "\u3042", "\ud55c", "\U00020000",
    "\U0001f600", "\U0001f44d\U0001f3fd", "\u200d", "\ufe0f", "\U0001f1e9\U0001f1ea", "\u20ac", "\u2192", "\ufffd", "\0", "\x1b", "\x7f",
    EOT, "<|", "|>", "<|endoftext", "\U0001e4d0", "\U00010d40", "\ua7da", "\U0010ffff",
]


def random_texts(count):
    r = Random(2019)
    for _ in range(count):
        yield "".join(SNIPPETS[r.below(len(SNIPPETS))] for _ in range(1 + r.below(40)))


# Texts of a megabyte. A text is the unit as often as it fits, or where there is an alphabet, characters drawn from it.
LONG = [
    {"name": "one letter", "unit": "a"},
    {"name": "two letters", "unit": "ab"},
    {"name": "letters", "alphabet": "abcdefghijklmnopqrstuvwxyz"},
    {"name": "likely letters", "alphabet": "eeeettaaooiinsshrdlu"},
    {"name": "digits", "alphabet": "0123456789"},
    {"name": "punctuation", "alphabet": "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"},
    {"name": "equals", "unit": "="},
    {"name": "spaces", "unit": " "},
    {"name": "newlines", "unit": "\n"},
    {"name": "chinese", "alphabet": "\u7684\u4e00\u662f\u4e0d\u4e86\u4eba\u6211\u5728\u6709\u4ed6\u8fd9"},
    {"name": "emoji", "unit": "\U0001f468\u200d\U0001f469\u200d\U0001f467"},
    {"name": "contractions", "unit": "'re'll"},
    {"name": "words", "alphabet": "etaoin shrdlu\n"},
]


def long_text(rule):
    size = 1 << 20
    if "unit" in rule:
        return rule["unit"] * (size // len(rule["unit"].encode()))
    r, out, left = Random(1 << 20), [], size
    alphabet = rule["alphabet"]
    while left > 0:
        c = alphabet[r.below(len(alphabet))]
        out.append(c)
        left -= len(c.encode())
    return "".join(out)


BLOCK = 4096  # characters to a hash


def character_text(first):
    """Each character of a block after and before a letter, a number, a space, a symbol and itself."""
    return "".join(f"a{c}a 1{c}1 {c} {c}{c}x!{c}! \n{c}\n" for c in
                   (chr(i) for i in range(first, first + BLOCK) if not 0xD800 <= i <= 0xDFFF))


def write_golden(gpt2, byte):
    def ids(tok, text):
        return tok.encode(text).ids

    def ordinary(tok, text):
        tok.encode_special_tokens = True
        try:
            return tok.encode(text).ids
        finally:
            tok.encode_special_tokens = False

    cases = []
    for name, text in CORPUS.items():
        case = {"name": name, "text": text, "gpt2": ids(gpt2, text), "bytes": digest(ids(byte, text))}
        if EOT in text:
            case["ordinary"] = ordinary(gpt2, text)
        cases.append(case)
    golden = {
        "made_by": f"tokenizers {tokenizers.__version__}",
        "cases": cases,
        "snippets": SNIPPETS,
        "random": [digest(ids(gpt2, text)) for text in random_texts(2000)],
        "random_ordinary": digest(sum((ordinary(gpt2, text) for text in random_texts(2000)), [])),
        "random_bytes": digest(sum((ids(byte, text) for text in random_texts(2000)), [])),
        "characters": [digest(ids(gpt2, character_text(i))) for i in range(0, 0x110000, BLOCK)],
        "long": [dict(rule, count=len(out), hash=digest(out))
                 for rule in LONG for out in [ids(gpt2, long_text(rule))]],
    }
    write_json(HERE / "golden.json", golden)


def write_json(path, value):
    """One line for each element of the lists at the top, so that differences can be read."""
    lines = []
    for key, v in value.items():
        if isinstance(v, list):
            v = "[\n" + ",\n".join(json.dumps(e, separators=(",", ":")) for e in v) + "\n]"
        else:
            v = json.dumps(v)
        lines.append(json.dumps(key) + ": " + v)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


# ------------------------------------------------------------------------------------------------------- options

def byte_level(merges=0, **options):
    """A small tokenizer, trained on the corpus where merges are asked for."""
    tok = Tokenizer(models.BPE(ignore_merges=options.pop("ignore_merges", False)))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=options.pop("add_prefix_space", False),
                                                 use_regex=options.pop("use_regex", True))
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=256 + merges, show_progress=False, min_frequency=1,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), special_tokens=[])
    tok.train_from_iterator([t for t in CORPUS.values()] * 2 if merges else [], trainer)
    assert not options
    return tok


def option_tokenizers():
    yield "prefix_space", byte_level(300, add_prefix_space=True)
    yield "no_regex", byte_level(300, use_regex=False)
    yield "no_regex_prefix_space", byte_level(300, use_regex=False, add_prefix_space=True)
    tok = byte_level(300)
    tok.add_special_tokens([EOT, AddedToken("<strip>", lstrip=True, rstrip=True), AddedToken("<left>", lstrip=True),
                            AddedToken("<right>", rstrip=True), AddedToken("<word>", single_word=True), "<|end", "<|"])
    tok.add_tokens([AddedToken("lo wo", normalized=True), AddedToken("world", single_word=True, normalized=True),
                    AddedToken("wor", normalized=True), AddedToken("\n", normalized=False),
                    AddedToken("caf\u00e9", normalized=False), AddedToken("<right>x", normalized=True)])
    yield "added_tokens", tok
    tok = byte_level(300, add_prefix_space=True)
    tok.add_special_tokens([EOT])
    tok.add_tokens(["the"])
    yield "prefix_space_added", tok

    # Words that are pieces as a whole, but that the merges don't reach.
    tok = byte_level(300, ignore_merges=True)
    model = json.loads(tok.to_str())
    for word in ("\u0120yonder", "window", "\u0120xyzzy"):
        if word not in model["model"]["vocab"]:
            model["model"]["vocab"][word] = len(model["model"]["vocab"])
    yield "ignore_merges", Tokenizer.from_str(json.dumps(model))


OPTION_TEXTS = [
    "", " ", "x", " x", "\nx", "the the", "Hello world", "Hello  world's", EOT, f"a{EOT}b", f" {EOT} the {EOT}\n",
    "a <strip> b", "a \t\n<strip>\n\u00a0 b<strip><strip>  <strip>c", "a <left> b", "a <right> b", "<right>x <right> <left> <strip>",
    "<left> <right>  <left>", "<word>", "a<word>", "a <word> b", "<word>1", "(<word>)", "\u00e9<word> <word>\u0301 \u200d<word> _<word> \u203f<word>",
    "world", "worlds", "a world.", "hello world lo wo lo world", "worwor world'wor", "<|endoftext<|end<|", "<|endoftext|>|>",
    "caf\u00e9 cafe\u0301\n\ncaf\u00e9s", "a  <right>  \n  b", "x <right> \n<left> y", "window yonder  xyzzy xyzzy",
    "the\u00a0the  the\n the", "one<word>world<word> world <word>world", "\ufffd<word>\ufffd",
]


def write_options():
    shutil.rmtree(HERE / "options", ignore_errors=True)
    for name, tok in option_tokenizers():
        folder = HERE / "options" / name
        folder.mkdir(parents=True)
        tok.save(str(folder / "tokenizer.json"), pretty=False)
        cases = []
        for text in OPTION_TEXTS + [CORPUS["shakespeare"], CORPUS["white space runs"], CORPUS["special words"]]:
            tok.encode_special_tokens = False
            case = {"text": text, "ids": tok.encode(text).ids}
            tok.encode_special_tokens = True
            case["ordinary"] = tok.encode(text).ids
            cases.append(case)
        write_json(folder / "golden.json", {"cases": cases})


def main():
    write_classes()
    write_options()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["go", "test", "-count=1", "-run", "^TestExport$", ".", "-export", folder],
                       cwd=HERE.parent, check=True)
        write_golden(Tokenizer.from_file(f"{folder}/gpt2/tokenizer.json"),
                     Tokenizer.from_file(f"{folder}/bytes/tokenizer.json"))


if __name__ == "__main__":
    main()
