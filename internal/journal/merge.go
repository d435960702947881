package journal

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"time"
)

// Part is a part of an experiment that was measured apart, as its directory holds it.
type Part[R any] struct {
	Dir           string
	Configuration map[string]json.RawMessage // of the whole experiment: without "shard"
	Shard         Shard
	Tasks         []Entry[R]
}

// ReadPart reads the directory of a part, whose configuration has a "shard" such as 2/8.
func (f Format[R]) ReadPart(dir string) (p Part[R], err error) {
	p.Dir = dir
	if p.Configuration, p.Tasks, err = f.read(dir); err != nil {
		return p, err
	}
	var shard string
	if json.Unmarshal(p.Configuration["shard"], &shard) != nil || shard == "" {
		return p, fmt.Errorf("%s is not a part of an experiment; --shard 1/2 measures one", dir)
	}
	delete(p.Configuration, "shard")
	if p.Shard, err = ParseShard(shard); err != nil {
		err = fmt.Errorf("%s is damaged: shard: %w", filepath.Join(dir, f.File), err)
	}
	return p, err
}

// Merge puts parts of one experiment together: their tasks in the order of their times, each once, and the parts that
// are not there, such as 2/8.
func (f Format[R]) Merge(parts []Part[R]) (tasks []Entry[R], missing []string, err error) {
	first, from := parts[0], map[string]int{} // the part and the place of each task
	there := map[int]bool{}
	for _, p := range parts {
		if difference := differ(p.Configuration, first.Configuration); difference != "" {
			return nil, nil, fmt.Errorf("%s is of another experiment than %s: %s", p.Dir, first.Dir, difference)
		}
		if p.Shard.Count != first.Shard.Count {
			return nil, nil, fmt.Errorf("%s is one of %d parts, but %s is one of %d", p.Dir, p.Shard.Count, first.Dir,
				first.Shard.Count)
		}
		there[p.Shard.Index] = true
		for _, t := range p.Tasks {
			at, ok := from[t.Task]
			if !ok {
				from[t.Task], tasks = len(tasks), append(tasks, t)
			} else if !reflect.DeepEqual(tasks[at], t) {
				return nil, nil, fmt.Errorf("%s holds '%s' with other values than a part before it; give each part once", p.Dir,
					t.Task)
			}
		}
	}
	for i := range first.Shard.Count {
		if !there[i+1] {
			missing = append(missing, fmt.Sprintf("%d/%d", i+1, first.Shard.Count))
		}
	}
	ended := func(t Entry[R]) (end time.Time) { // one without rows comes first
		if len(t.Rows) > 0 {
			end = f.Time(t.Rows[0])
		}
		return end
	}
	slices.SortStableFunc(tasks, func(a, b Entry[R]) int { return ended(a).Compare(ended(b)) })
	return tasks, missing, nil
}

// Save writes the state file of an experiment that was put together, so that it can go on there. One that is in the
// directory must be of the same experiment, and hold nothing else.
func (f Format[R]) Save(dir string, configuration map[string]any, tasks []Entry[R]) error {
	j, err := f.Open(dir, configuration)
	if err != nil {
		return err
	}
	defer j.Close()
	left := maps.Clone(j.done)
	var add []Entry[R]
	for _, t := range tasks {
		if !left[t.Task] {
			add = append(add, t)
		}
		delete(left, t.Task)
	}
	for task := range left {
		return fmt.Errorf("%s holds '%s', which no part holds; give another directory", filepath.Clean(dir), task)
	}
	return j.AddAll(add)
}
