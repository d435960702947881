package nsys

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/lazyregexp"
)

// pages reads the rows of tables from the pages of an sqlite file: a driver takes five times as long, since it boxes each
// value. The names are those of SQLite's "Database File Format", section 1.6.
type pages struct {
	file     *os.File
	usable   int      // bytes of a page
	buffers  [][]byte // a page for each level of a tree
	overflow []byte   // a page of a long row
	long     []byte   // such a row
	size     int64    // of the file
	done     int64    // bytes that were read
	left     int64    // pages that a table may have yet: damage could make rings of them
	progress func(done, total int64)
}

// table is a table of the file.
type table struct {
	root    uint32 // page
	columns []string
	key     int // the column that stands for the id of the row, -1 for none
}

func (p *pages) tables() (map[string]*table, error) {
	found := map[string]*table{}
	// type, name, tbl_name, rootpage, sql
	err := p.rows(1, layout{[]int{0, 1, -1, 2, 3}, -1}, make(row, 4), func(r row) error {
		kind, _ := r.text(0)
		name, _ := r.text(1)
		create, _ := r.text(3)
		if root := r.int(2); kind == "table" && root > 0 && root <= math.MaxUint32 {
			found[name] = &table{root: uint32(root)}
			found[name].define(create)
		}
		return nil
	})
	return found, err
}

var (
	sqlNoise   = lazyregexp.New(`(?s)--[^\n]*|/\*.*?\*/|\([^()]*\)`) // comments, and what is in inner brackets
	columnName = lazyregexp.New("^\\s*(?:\"([^\"]+)\"|`([^`]+)`|\\[([^]]+)\\]|(\\w+))")
	constraint = lazyregexp.New(`(?i)^\s*(?:constraint|unique|check|primary\s+key|foreign\s+key)\b`)
	keyColumn  = lazyregexp.New(`(?is)^\s*\S+\s+integer\s.*primary\s+key`)
)

// define takes the columns from the statement that created the table.
func (t *table) define(create string) {
	t.key = -1
	_, columns, _ := strings.Cut(create, "(")
	columns = columns[:max(0, strings.LastIndexByte(columns, ')'))]
	for column := range strings.SplitSeq(sqlNoise().ReplaceAllString(columns, ""), ",") {
		if m := columnName().FindStringSubmatch(column); m != nil && !constraint().MatchString(column) {
			if keyColumn().MatchString(column) {
				t.key = len(t.columns)
			}
			t.columns = append(t.columns, strings.Join(m[1:], ""))
		}
	}
}

// errDamaged is the error of a file whose pages contradict one another.
var errDamaged = errors.New("the database is damaged")

// value is a column of a row. A text is valid until the next row.
type value struct {
	kind byte // 'i', 'f', 't'; 0 for none
	int  int64
	text []byte
}

// row is a row of a table: the columns that were asked for.
type row []value

// int returns a column as a number, 0 if it has none.
func (r row) int(i int) int64 {
	v, _ := r.maybe(i)
	return v
}

// maybe returns a column as a number, and whether it has one.
func (r row) maybe(i int) (int64, bool) {
	switch v := &r[i]; v.kind {
	case 'i':
		return v.int, true
	case 'f':
		f := math.Float64frombits(uint64(v.int))
		return int64(f), f >= math.MinInt64 && f < math.MaxInt64
	case 't':
		n, err := strconv.ParseInt(string(v.text), 10, 64)
		return n, err == nil
	}
	return 0, false
}

// int32 returns a column as a number from 0 to the largest int32.
func (r row) int32(i int) int32 { return int32(min(max(r.int(i), 0), math.MaxInt32)) }

// text returns a column as text, and whether it has any.
func (r row) text(i int) (string, bool) {
	switch v := &r[i]; v.kind {
	case 't':
		return string(v.text), true
	case 'i':
		return strconv.FormatInt(v.int, 10), true
	}
	return "", false
}

// layout says where a row keeps the columns of a table.
type layout struct {
	places []int // by column: its place in the row, -1 for none
	key    int   // place of the column that stands for the id of the row, -1 for none
}

// open reads the head of the file. It refuses a file that is shorter than its header says. SQLite itself reads such
// a file without an error as long as no query needs the pages that are missing.
func (p *pages) open() error {
	info, err := p.file.Stat()
	if err != nil {
		return fmt.Errorf("cannot be read: %w", humanize.Cause(err))
	}
	for _, with := range []string{"-wal", "-journal"} { // its changes are not in the file yet, or are to be taken back
		if i, err := os.Stat(p.file.Name() + with); err == nil && i.Size() > 0 {
			return fmt.Errorf("was not closed by the program that wrote it: %s lies beside it; "+
				"'sqlite3 FILE vacuum' puts both together", i.Name())
		}
	}
	// "Database File Format", section 1.3: big-endian numbers; a page of 65,536 bytes is written
	// as 1, and the number of pages holds only if the two change counters agree.
	var head [100]byte
	if _, err := p.file.ReadAt(head[:], 0); err != nil {
		return errors.New("is not a readable export of Nsight Systems: it ends in its header")
	}
	page, pages := int64(binary.BigEndian.Uint16(head[16:])), int64(binary.BigEndian.Uint32(head[28:]))
	if page == 1 {
		page = 1 << 16
	}
	if expected := page * pages; info.Size() < expected && bytes.Equal(head[24:28], head[92:96]) {
		return fmt.Errorf("is cut off: its header says %d bytes, and it has %d: copy it again, or repeat nsys export",
			expected, info.Size())
	}
	if head[59] > 1 {
		return errors.New("is not an export of Nsight Systems: its texts are UTF-16")
	}
	if p.usable = int(page) - int(head[20]); p.usable < 480 || page&(page-1) != 0 {
		return errors.New("is not a readable export of Nsight Systems: its header is damaged")
	}
	p.size, p.overflow = info.Size(), make([]byte, page)
	return nil
}

// The kinds of pages of a table whose rows have ids, as all of nsys have.
const interior, leaf = 5, 13

// rows calls each for the rows of a table, whose tree begins at a page.
func (p *pages) rows(root uint32, at layout, r row, each func(row) error) error {
	p.left = p.size / int64(len(p.overflow))
	return p.walk(root, 0, at, r, each)
}

// walk calls each for the rows below a page, in the order of their ids.
func (p *pages) walk(number uint32, level int, at layout, r row, each func(row) error) error {
	if len(p.buffers) == level {
		p.buffers = append(p.buffers, make([]byte, len(p.overflow)))
	}
	page := p.buffers[level]
	if err := p.read(number, page); err != nil {
		return err
	}
	page = page[:p.usable]
	base := headOf(number)
	kind, cells := page[base], int(binary.BigEndian.Uint16(page[base+3:]))
	head := base + 8
	if kind == interior {
		head += 4
	}
	if kind != interior && kind != leaf || head+2*cells > len(page) {
		return errDamaged
	}
	for i := range cells {
		begin := int(binary.BigEndian.Uint16(page[head+2*i:]))
		if begin+4 > len(page) {
			return errDamaged
		}
		cell := page[begin:]
		if kind == interior {
			if err := p.walk(binary.BigEndian.Uint32(cell), level+1, at, r, each); err != nil {
				return err
			}
			continue
		}
		size, n := varint(cell)
		id, m := varint(cell[n:])
		payload, err := p.payload(cell[n+m:], size)
		if err != nil {
			return err
		}
		if err := at.row(payload, id, r); err != nil {
			return err
		}
		if err := each(r); err != nil {
			return err
		}
	}
	if kind == interior {
		return p.walk(binary.BigEndian.Uint32(page[base+8:]), level+1, at, r, each)
	}
	return nil
}

func (p *pages) read(number uint32, into []byte) error {
	if p.left--; number == 0 || p.left < 0 {
		return errDamaged
	}
	_, err := p.file.ReadAt(into, int64(number-1)*int64(len(into)))
	if p.done += int64(len(into)); p.progress != nil && p.done>>20 != (p.done-int64(len(into)))>>20 {
		p.progress(min(p.done, p.size), p.size)
	}
	return err
}

// headOf is where the head of a page begins: that of the file precedes the first.
func headOf(number uint32) int {
	if number == 1 {
		return 100
	}
	return 0
}

// payload returns the bytes of a row, of which a long one goes on in other pages.
func (p *pages) payload(cell []byte, size int64) ([]byte, error) {
	usable := int64(p.usable)
	if size >= 0 && size <= usable-35 {
		if size > int64(len(cell)) {
			return nil, errDamaged
		}
		return cell[:size], nil
	}
	const most = 1 << 30 // of SQLite itself
	least := (usable-12)*32/255 - 23
	local := least + (size-least)%(usable-4)
	if local > usable-35 {
		local = least
	}
	if size < 0 || size > most || local < 0 || local+4 > int64(len(cell)) {
		return nil, errDamaged
	}
	p.long = append(p.long[:0], cell[:local]...)
	for next := binary.BigEndian.Uint32(cell[local:]); int64(len(p.long)) < size; {
		if err := p.read(next, p.overflow); err != nil {
			return nil, err
		}
		next = binary.BigEndian.Uint32(p.overflow)
		p.long = append(p.long, p.overflow[4:min(usable, 4+size-int64(len(p.long)))]...)
	}
	return p.long, nil
}

// row reads a row from its bytes: the types of its columns, then their values.
func (l *layout) row(payload []byte, id int64, r row) error {
	clear(r)
	size, n := varint(payload)
	if size < int64(n) || size > int64(len(payload)) {
		return errDamaged
	}
	types, body := payload[n:size], payload[size:]
	for _, place := range l.places {
		if len(types) == 0 { // the table got more columns later
			break
		}
		kind, n := varint(types)
		types = types[n:]
		size := int64(0)
		switch {
		case kind >= 12:
			size = (kind - 12) / 2
		case kind >= 0 && kind < 8:
			size = int64("\x00\x01\x02\x03\x04\x06\x08\x08"[kind])
		}
		if size > int64(len(body)) {
			return errDamaged
		}
		if place >= 0 {
			r[place].set(kind, body[:size])
		}
		body = body[size:]
	}
	if l.key >= 0 {
		r[l.key] = value{kind: 'i', int: id}
	}
	return nil
}

// set sets a value of a serial type.
func (v *value) set(kind int64, body []byte) {
	switch {
	case kind >= 12:
		v.kind, v.text = 't', body
	case kind == 8 || kind == 9: // the numbers 0 and 1
		v.kind, v.int = 'i', kind-8
	case kind > 0 && kind < 8:
		n := int64(int8(body[0]))
		for _, b := range body[1:] {
			n = n<<8 | int64(b)
		}
		if v.kind, v.int = 'i', n; kind == 7 {
			v.kind = 'f'
		}
	}
}

// varint reads a number of 1 to 9 bytes, and returns how many these are; 0 of nothing.
func varint(b []byte) (v int64, n int) {
	for i, c := range b[:min(9, len(b))] {
		if i == 8 {
			return v<<8 | int64(c), 9
		}
		if v = v<<7 | int64(c&0x7f); c < 0x80 {
			return v, i + 1
		}
	}
	return 0, len(b)
}
