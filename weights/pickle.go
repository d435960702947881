package weights

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

// A pickle is a program for a small stack machine, which may import and call anything in Python. The one here has the
// instructions that build values, and calls nothing but the constructors in pickleNames: every other name is refused.
// (Python's pickletools.py describes the instructions.)

// maxPickle bounds a pickle: its values take at most some tens of bytes for each of its own.
const maxPickle = 16 << 20

// The values that a pickle may hold, besides nil, bool, int64, float64 and string.
type (
	tuple       []any
	list        struct{ items []any }
	dict        map[any]any                                // by string, int64, float64, bool or nil
	builder     func(args tuple) (value any, wrong string) // what a pickle may call
	elementFile struct {                                   // a file of elements beside the pickle
		dtype DType
		key   string
	}
	strided struct { // a tensor
		elementFile
		offset       int64 // in elements
		size, stride tuple // of int64
	}
)

// pickleNames are all that a pickle may refer to: what torch.save writes of tensors, and ordered dictionaries.
var pickleNames = map[string]any{
	"collections.OrderedDict": builder(func(args tuple) (any, string) {
		if len(args) > 0 {
			return nil, "makes an OrderedDict of arguments, which torch.save does not do"
		}
		return dict{}, ""
	}),
	"torch.Size": builder(func(args tuple) (any, string) {
		if size, ok := at(args, 0).(tuple); ok {
			return size, ""
		}
		return nil, "makes a torch.Size of something else than numbers"
	}),
	"torch._utils._rebuild_tensor_v2": builder(func(args tuple) (any, string) {
		t := strided{}
		var ok [4]bool
		t.elementFile, ok[0] = at(args, 0).(elementFile)
		t.offset, ok[1] = at(args, 1).(int64)
		t.size, ok[2] = at(args, 2).(tuple)
		t.stride, ok[3] = at(args, 3).(tuple)
		if ok != [4]bool{true, true, true, true} {
			return nil, "makes a tensor of something else than a storage, its offset, sizes and strides"
		}
		return t, ""
	}),
	"torch._utils._rebuild_parameter": builder(func(args tuple) (any, string) {
		if t, ok := at(args, 0).(strided); ok {
			return t, ""
		}
		return nil, "makes a parameter of something else than a tensor"
	}),
	"torch.FloatStorage": F32, "torch.HalfStorage": F16, "torch.BFloat16Storage": BF16, "torch.DoubleStorage": F64,
	"torch.LongStorage": DType("I64"), "torch.IntStorage": DType("I32"), "torch.ShortStorage": DType("I16"),
	"torch.CharStorage": DType("I8"), "torch.ByteStorage": DType("U8"), "torch.BoolStorage": DType("BOOL"),
}

func at(args tuple, i int) any {
	if i < len(args) {
		return args[i]
	}
	return nil
}

// unpickler runs a pickle. Its first error sticks.
type unpickler struct {
	file string // for messages
	text []byte
	pos  int // of the next byte

	stack []any
	marks []int          // heights of the stack
	memo  map[uint64]any // values that are used again, by number
	err   error
}

func unpickle(file string, text []byte) (any, error) {
	u := &unpickler{file: file, text: text, memo: map[uint64]any{}}
	for u.err == nil {
		op := u.take(1)
		if u.err != nil {
			break
		}
		if op[0] == '.' { // STOP
			v := u.pop()
			return v, u.err
		}
		u.do(op[0])
	}
	return nil, u.err
}

func (u *unpickler) fail(format string, args ...any) {
	if u.err == nil {
		u.err = &Error{File: u.file, Offset: int64(u.pos), Problem: fmt.Sprintf(format, args...)}
	}
}

// take returns the next n bytes, or nil after an error.
func (u *unpickler) take(n uint64) []byte {
	if n > uint64(len(u.text)-u.pos) {
		u.fail("the pickle ends within a value: it is truncated or damaged, copy or download it again")
		return nil
	}
	b := u.text[u.pos : u.pos+int(n)]
	u.pos += int(n)
	return b
}

// number reads an unsigned number of so many bytes, 8 at most.
func (u *unpickler) number(size uint64) uint64 { return unsigned(u.take(size)) }

func (u *unpickler) line() string {
	n := bytes.IndexByte(u.text[u.pos:], '\n')
	if n < 0 {
		u.fail("the pickle ends within a name: it is truncated or damaged, copy or download it again")
		return ""
	}
	return string(u.take(uint64(n + 1))[:n])
}

func (u *unpickler) push(v any) { u.stack = append(u.stack, v) }

// pop takes a value off the stack, though none from below a mark.
func (u *unpickler) pop() any {
	n := len(u.stack) - 1
	if n < 0 || len(u.marks) > 0 && n < u.marks[len(u.marks)-1] {
		u.fail("the pickle takes more values than it made: it is damaged")
		return nil
	}
	v := u.stack[n]
	u.stack = u.stack[:n]
	return v
}

// popMark takes off all values above the last mark, and the mark.
func (u *unpickler) popMark() []any {
	if len(u.marks) == 0 {
		u.fail("the pickle uses a mark that it did not set: it is damaged")
		return nil
	}
	from := u.marks[len(u.marks)-1]
	u.marks = u.marks[:len(u.marks)-1]
	items := append([]any(nil), u.stack[from:]...)
	u.stack = u.stack[:from]
	return items
}

func (u *unpickler) do(op byte) {
	switch op {
	case 0x80: // PROTO
		if version := u.number(1); version > 5 {
			u.fail("the pickle is of protocol %d; up to 5 are read", version)
		}
	case 0x95: // FRAME
		u.take(8)
	case '(': // MARK
		u.marks = append(u.marks, len(u.stack))
	case '0': // POP
		u.pop()
	case 'N':
		u.push(nil)
	case 0x88, 0x89: // NEWTRUE, NEWFALSE
		u.push(op == 0x88)
	case 'K': // BININT1
		u.push(int64(u.number(1)))
	case 'M': // BININT2
		u.push(int64(u.number(2)))
	case 'J': // BININT
		u.push(signed(u.take(4)))
	case 0x8a: // LONG1
		u.push(u.long(u.number(1)))
	case 'G': // BINFLOAT, big-endian
		if b := u.take(8); b != nil {
			u.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
		}
	case 'X': // BINUNICODE
		u.str(u.number(4))
	case 0x8c: // SHORT_BINUNICODE
		u.str(u.number(1))
	case 0x8d: // BINUNICODE8
		u.str(u.number(8))
	case ')': // EMPTY_TUPLE
		u.push(tuple{})
	case 't': // TUPLE
		u.push(tuple(u.popMark()))
	case 0x85, 0x86, 0x87: // TUPLE1, 2, 3
		t := make(tuple, op-0x84)
		for i := len(t) - 1; i >= 0; i-- {
			t[i] = u.pop()
		}
		u.push(t)
	case ']': // EMPTY_LIST
		u.push(&list{})
	case 'a': // APPEND
		u.extend([]any{u.pop()})
	case 'e': // APPENDS
		u.extend(u.popMark())
	case '}': // EMPTY_DICT
		u.push(dict{})
	case 's': // SETITEM
		value, key := u.pop(), u.pop()
		u.set([]any{key, value})
	case 'u': // SETITEMS
		u.set(u.popMark())
	case 'q': // BINPUT
		u.remember(u.number(1))
	case 'r': // LONG_BINPUT
		u.remember(u.number(4))
	case 0x94: // MEMOIZE
		u.remember(uint64(len(u.memo)))
	case 'h': // BINGET
		u.recall(u.number(1))
	case 'j': // LONG_BINGET
		u.recall(u.number(4))
	case 'c': // GLOBAL
		module := u.line()
		u.name(module, u.line())
	case 0x93: // STACK_GLOBAL
		name, _ := u.pop().(string)
		module, _ := u.pop().(string)
		u.name(module, name)
	case 'Q': // BINPERSID
		u.storage(u.pop())
	case 'R': // REDUCE
		u.call()
	case 'b': // BUILD, the attributes of an ordered dictionary: no part of its items
		u.pop()
		if d, ok := u.pop().(dict); ok {
			u.push(d)
		} else {
			u.fail("the pickle sets the attributes of what is no dictionary, which is not read")
		}
	default:
		u.pos--
		u.fail("the pickle has the instruction %q, which is not read: %s", op, loadInPython)
	}
}

// loadInPython says what to do about a pickle of more than numbers and tensors.
const loadInPython = "nothing in a file is executed here; load it with the program that wrote it, and torch.save the " +
	"model's state_dict alone"

// long makes a number of a two's complement of n bytes.
func (u *unpickler) long(n uint64) int64 {
	if n > 8 {
		u.fail("the pickle has a whole number of %d bytes; at most 8 are read", n)
		return 0
	}
	return signed(u.take(n))
}

func (u *unpickler) str(n uint64) {
	b := u.take(n)
	if !utf8.Valid(b) {
		u.fail("the pickle has a text that is not UTF-8")
	}
	u.push(string(b))
}

// extend appends items to the list on the stack.
func (u *unpickler) extend(items []any) {
	if l, ok := u.top().(*list); ok {
		l.items = append(l.items, items...)
		return
	}
	u.fail("the pickle appends to what is no list: it is damaged")
}

// set puts keys with their values into the dictionary on the stack.
func (u *unpickler) set(pairs []any) {
	d, ok := u.top().(dict)
	if !ok || len(pairs)%2 != 0 {
		u.fail("the pickle sets items of what is no dictionary, or keys without values: it is damaged")
		return
	}
	for i := 0; i < len(pairs); i += 2 {
		switch key := pairs[i].(type) {
		case nil, bool, int64, float64, string:
			d[key] = pairs[i+1]
		default:
			u.fail("the pickle has a dictionary whose keys are neither texts nor numbers, which is not read")
			return
		}
	}
}

// top returns the value on the stack, nil if there is none.
func (u *unpickler) top() any {
	v := u.pop()
	u.push(v)
	return v
}

// remember notes the value on the stack under a number.
func (u *unpickler) remember(i uint64) { u.memo[i] = u.top() }

func (u *unpickler) recall(i uint64) {
	v, ok := u.memo[i]
	if !ok {
		u.fail("the pickle uses value %d, which it did not make: it is damaged", i)
	}
	u.push(v)
}

// name pushes what a name stands for.
func (u *unpickler) name(module, name string) {
	v, ok := pickleNames[module+"."+name]
	if !ok {
		u.fail("the pickle needs %s, which is neither a tensor, a dictionary, a list, a number nor a text: %s",
			quote(module+"."+name), loadInPython)
		return
	}
	u.push(v)
}

// call replaces a name and its arguments by what the name makes of them.
func (u *unpickler) call() {
	args, ok := u.pop().(tuple)
	build, known := u.pop().(builder)
	if !ok || !known {
		u.fail("the pickle calls what cannot be called: it is damaged")
		return
	}
	v, wrong := build(args)
	if wrong != "" {
		u.fail("the pickle %s: %s", wrong, loadInPython)
	}
	u.push(v)
}

// storage pushes what an identity stands for: ("storage", type, key, device, elements).
func (u *unpickler) storage(id any) {
	t, _ := id.(tuple)
	dtype, isType := at(t, 1).(DType)
	key, isKey := at(t, 2).(string)
	if at(t, 0) != "storage" || !isType || !isKey {
		u.fail("the pickle refers to something else than a storage of a known type: %s", loadInPython)
		return
	}
	u.push(elementFile{dtype, key})
}
