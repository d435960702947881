package tokenizer

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
)

// A pair is two adjacent tokens: the left id in the upper 32 bits, the right one in the lower.
type pair uint64

func pairOf(left, right int32) pair { return pair(uint32(left))<<32 | pair(uint32(right)) }

func (p pair) left() int32  { return int32(p >> 32) }
func (p pair) right() int32 { return int32(uint32(p)) }

// A merge says what becomes of a pair, and how early: the lowest rank goes first.
type merge struct {
	rank int32
	id   int32 // the token that replaces the pair
}

// noRank is the rank of a pair that is not in the list of merges.
const noRank = math.MaxInt32

// A mergeTable maps pairs to merges.
type mergeTable map[pair]merge

// get returns the merge of p; its rank is noRank if there is none.
func (t mergeTable) get(p pair) merge {
	if m, ok := t[p]; ok {
		return m
	}
	return merge{noRank, -1}
}

// sorted returns the pairs in the order of ranks.
func (t mergeTable) sorted() []pair {
	return slices.SortedFunc(maps.Keys(t), func(a, b pair) int { return cmp.Compare(t[a].rank, t[b].rank) })
}

// A bpe is the model: the token of each byte, and the merges.
type bpe struct {
	byteID [256]int32
	merges mergeTable
}

func (m *bpe) appendWord(dst []int32, w string) []int32 {
	start := len(dst)
	for i := range len(w) {
		dst = append(dst, m.byteID[w[i]])
	}
	return dst[:start+m.merge(dst[start:])]
}

// A node is a token of a word that is being merged, in a doubly linked list. Its index is the position of the
// token's first byte in the word and stays the same as the token grows.
type node struct {
	prev, next int32 // -1: none
	merge            // of this token and the next; rank noRank if there is none, or the token is gone
}

// work is what merge needs; kept between calls.
type work struct {
	nodes []node
	queue rankQueue
}

var workPool = sync.Pool{New: func() any { return new(work) }}

// keepNodes bounds the memory that workPool keeps: a longer word's work is left to the garbage collector.
const keepNodes = 1 << 16

// merge merges ids in place and returns how many are left, in O(n log n).
func (m *bpe) merge(ids []int32) int {
	if len(ids) < 2 {
		return len(ids)
	}
	w := workPool.Get().(*work)
	defer func() {
		if cap(w.nodes) <= keepNodes {
			workPool.Put(w)
		}
	}()
	if cap(w.nodes) < len(ids) {
		w.nodes = make([]node, len(ids))
		w.queue = make(rankQueue, 0, len(ids))
	}
	nodes, queue := w.nodes[:len(ids)], w.queue[:0]

	// find looks up the merge of the token at i and the next.
	find := func(i int32) bool {
		nodes[i].rank = noRank
		if j := nodes[i].next; j >= 0 {
			nodes[i].merge = m.merges.get(pairOf(ids[i], ids[j]))
		}
		return nodes[i].rank != noRank
	}
	last := int32(len(ids) - 1)
	for i := range nodes {
		nodes[i] = node{prev: int32(i) - 1, next: int32(i) + 1}
	}
	nodes[last].next = -1
	for i := range last + 1 {
		if find(i) {
			queue.push(entryOf(nodes[i].rank, i))
		}
	}

	for len(queue) > 0 {
		top := queue.pop()
		i := top.position()
		// An entry is out of date when the pair at i has changed since, which changed its rank: each rank belongs
		// to one pair.
		if nodes[i].rank != top.rank() {
			continue
		}
		ids[i] = nodes[i].id
		gone := nodes[i].next
		nodes[gone].rank = noRank
		next := nodes[gone].next
		nodes[i].next = next
		if next >= 0 {
			nodes[next].prev = i
		}
		if find(i) {
			queue.push(entryOf(nodes[i].rank, i))
		}
		if p := nodes[i].prev; p >= 0 && find(p) {
			queue.push(entryOf(nodes[p].rank, p))
		}
	}
	w.queue = queue

	n := 0
	for i := int32(0); i >= 0; i = nodes[i].next {
		ids[n] = ids[i]
		n++
	}
	return n
}

// A rankEntry is a possible merge: its rank in the upper 32 bits, its position in the word in the lower, so that
// comparing entries orders them by rank and then from left to right.
type rankEntry uint64

func entryOf(rank, position int32) rankEntry {
	return rankEntry(uint32(rank))<<32 | rankEntry(uint32(position))
}

func (e rankEntry) rank() int32     { return int32(e >> 32) }
func (e rankEntry) position() int32 { return int32(uint32(e)) }

// A rankQueue is a binary min-heap. (container/heap would box every entry.)
type rankQueue []rankEntry

func (q *rankQueue) push(e rankEntry) {
	h := append(*q, e)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent] <= e {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
	*q = h
}

func (q *rankQueue) pop() rankEntry {
	h := *q
	top, e := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	i := 0
	for child := 1; child < len(h); child = 2*i + 1 {
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if e <= h[child] {
			break
		}
		h[i] = h[child]
		i = child
	}
	if len(h) > 0 {
		h[i] = e
	}
	*q = h
	return top
}
