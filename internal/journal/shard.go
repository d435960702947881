package journal

import "fmt"

// Shard is a part of a series of measurements: part Index, from 1 on, of Count. The zero value is all of it.
type Shard struct{ Index, Count int }

// ParseShard reads "2/8".
func ParseShard(text string) (s Shard, err error) {
	var rest string
	n, err := fmt.Sscanf(text+" end", "%d/%d %s", &s.Index, &s.Count, &rest)
	if err != nil || n != 3 || rest != "end" || s.Index < 1 || s.Index > s.Count || s.Count > 1<<16 {
		return Shard{}, fmt.Errorf("%q is not a part such as 2/8: the second of eight", text)
	}
	return s, nil
}

// Of returns every Count-th piece of work, so that each part has some of all kinds.
func Of[T any](s Shard, work []T) (part []T) {
	for i, w := range work {
		if s.Count <= 1 || i%s.Count == s.Index-1 {
			part = append(part, w)
		}
	}
	return part
}
