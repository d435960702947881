package weights

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// openShards opens the files that an index names, and checks that each tensor is
// in the file that the index gives for it.
func openShards(d directory, index *storage) (*Checkpoint, error) {
	if index.size > maxHeader {
		return nil, problem(index.name, "is %d bytes long, and the most for an index is %d", index.size, maxHeader)
	}
	text := make([]byte, index.size)
	if err := index.read(text, 0); err != nil {
		return nil, err
	}
	shardOf, err := parseIndex(index.name, text)
	if err != nil {
		return nil, err
	}

	var files []*storage
	for _, shard := range slices.Compact(slices.Sorted(maps.Values(shardOf))) {
		file, err := d.open(shard)
		if err != nil {
			for _, file := range files {
				file.close()
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil, problem(d.display(shard), "no such file, but %s names it: the checkpoint is incomplete, copy or "+
					"download this shard too", filepath.Base(index.name)).because(fs.ErrNotExist)
			}
			return nil, err
		}
		files = append(files, file)
	}
	c, err := fromFiles(files...)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(shardOf)) {
		wrong := problem(index.name, "")
		wrong.Tensor = name
		said, t := d.display(shardOf[name]), c.tensors[name]
		switch {
		case t.file == nil:
			wrong.Problem = "expected in " + said + ", found in no shard: index and shards do not belong together"
		case t.file.name != said:
			wrong.Problem = "expected in " + said + ", found in " + t.file.name + ": index and shards do not belong together"
		default:
			continue
		}
		c.Close()
		return nil, wrong
	}
	return c, nil
}

// parseIndex reads the JSON of an index: which shard holds which tensor. Each
// shard is the plain name of a file beside the index.
func parseIndex(file string, text []byte) (shardOf map[string]string, err error) {
	if len(text) == 0 {
		return nil, problem(file, "is empty: copy or download it again")
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := unmarshal(file, "the index", text, 0, &index); err != nil {
		return nil, err
	}
	if shardOf = index.WeightMap; len(shardOf) == 0 {
		return nil, problem(file, "weight_map is missing or empty: an index says there which shard holds which tensor")
	}
	for _, tensor := range slices.Sorted(maps.Keys(shardOf)) {
		if shard := shardOf[tensor]; !plainName(shard) {
			e := problem(file, "the index puts it into %s, which is not the name of a file in the same directory", quote(shard))
			e.Tensor = tensor
			return nil, e
		}
	}
	return shardOf, nil
}

// plainName reports whether a path is the name of a file in the same directory, on any system.
func plainName(path string) bool {
	return path != "." && fs.ValidPath(path) && filepath.IsLocal(path) && !strings.ContainsAny(path, "/\\:\x00")
}
