package tokenizer

import (
	"fmt"
	"strings"
)

// loadBERT reads a vocab.txt, a token a line, as transformers' BertTokenizer does.
func loadBERT(d *folder, name string, data []byte, cfg *config) (*Tokenizer, error) {
	if class := strings.TrimSuffix(d.class(cfg), "Fast"); class != "BertTokenizer" && class != "" {
		return nil, fmt.Errorf("%s: its class, %.60s, is not supported: only BertTokenizer is, as others split words by "+
			"other programs or rules", name, class)
	}
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data))
	vocab := make(map[string]int32)
	for id, token := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		vocab[token] = int32(id) // of two equal tokens the later counts
	}
	special := []*configToken{&cfg.UNK, &cfg.SEP, &cfg.PAD, &cfg.CLS, &cfg.Mask}
	for i, content := range []string{"[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"} {
		if !special[i].named {
			special[i].Content, special[i].Special = content, true
		}
	}
	t, err := parseTokenizer(d, inline(object{
		"normalizer": object{"type": "BertNormalizer", "lowercase": cfg.Lowercase, "handle_chinese_chars": cfg.Chinese,
			"strip_accents": cfg.Accents},
		"pre_tokenizer": object{"type": "BertPreTokenizer"},
		"model":         object{"type": "WordPiece", "vocab": vocab, "unk_token": cfg.UNK.Content},
		"decoder":       object{"type": "WordPiece"},
	}), cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	t.before, t.after = t.withRole("cls_token"), t.withRole("sep_token")
	return t, nil
}

// class is the class of the tokenizer, which tokenizer_config.json or the model's config.json names; "" if neither
// does.
func (d *folder) class(cfg *config) string {
	own := config{Class: cfg.Class}
	if cfg.Class == "" {
		_ = d.readInto("config.json", &own) // one that is not JSON names none
		delete(d.files, "config.json")      // which is the model's
	}
	return own.Class
}
