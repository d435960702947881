package learn

// Picture is what package learn/page draws of data: bars, lines, or spans of time.
type Picture struct {
	Title string
	X, Y  Axis
	Bars  []Bar  // one below the other; Y is not used
	Lines []Line // points joined by lines
	Spans []Span // what ran when; X is the time
}

// Axis is one of a picture.
type Axis struct {
	Name string // with the unit
	Log  bool
}

// Bar is a value with a name.
type Bar struct {
	Name             string
	Value, Low, High float64 // Low and High are the ends of the interval, the value if there is none
}

// Line is a series of points.
type Line struct {
	Name string
	X, Y []float64
}

// Span is work in a row from Start to End.
type Span struct {
	Row, Name  string
	Start, End float64
}

// barOf is the bar of a figure, divided by a unit.
func barOf(f Figure, unit float64) Bar {
	low, high := f.interval()
	return Bar{f.Name, f.Value / unit, low / unit, high / unit}
}

// lineOf joins the medians of a quantity of a case.
func lineOf(d Data, of, quantity string) Line {
	l := Line{Name: of, X: d.xs(of, quantity)}
	for _, x := range l.X {
		l.Y = append(l.Y, median(d.at(of, quantity, x)))
	}
	return l
}
