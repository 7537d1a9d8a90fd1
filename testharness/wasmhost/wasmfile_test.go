package wasmhost

// A few bytes of WebAssembly, for modules that no compiler would make.

// wasmFunc is an exported function without results: its parameters and body.
type wasmFunc struct {
	export  string
	params  int
	results int
	body    []byte
}

const (
	opUnreachable = 0x00
	opCall        = 0x10
	opDrop        = 0x1a
	opI32Const    = 0x41
	opEnd         = 0x0b
)

// wasmModule is a module with one page of memory that imports functions of env
// of one i32 parameter and an i32 result (their indices come first), and exports
// the functions given.
func wasmModule(imports []string, funcs ...wasmFunc) []byte {
	return makeWasm(imports, 1, funcs)
}

// wasmModuleWith imports one function, of several parameters.
func wasmModuleWith(name string, params int, funcs ...wasmFunc) []byte {
	return makeWasm([]string{name}, params, funcs)
}

func makeWasm(imports []string, importParams int, funcs []wasmFunc) []byte {
	section := func(id byte, items [][]byte) []byte {
		body := leb(len(items))
		for _, i := range items {
			body = append(body, i...)
		}
		return append(append([]byte{id}, leb(len(body))...), body...)
	}
	signature := func(params, results int) []byte {
		t := append([]byte{0x60}, leb(params)...)
		for range params {
			t = append(t, 0x7f)
		}
		t = append(t, leb(results)...)
		for range results {
			t = append(t, 0x7f)
		}
		return t
	}
	types := [][]byte{signature(importParams, 1)}
	var imported, defined, exported, code [][]byte
	for _, name := range imports {
		imported = append(imported, append(append(append(name32("env"), name32(name)...), 0x00), leb(0)...))
	}
	for i, f := range funcs {
		types = append(types, signature(f.params, f.results))
		defined = append(defined, leb(i+1))
		exported = append(exported, append(append(name32(f.export), 0x00), leb(len(imports)+i)...))
		body := append(append([]byte{0x00}, f.body...), opEnd)
		code = append(code, append(leb(len(body)), body...))
	}
	exported = append(exported, append(append(name32("memory"), 0x02), leb(0)...))
	out := []byte{0, 'a', 's', 'm', 1, 0, 0, 0}
	out = append(out, section(1, types)...)
	out = append(out, section(2, imported)...)
	out = append(out, section(3, defined)...)
	out = append(out, section(5, [][]byte{{0x00, 0x01}})...)
	out = append(out, section(7, exported)...)
	return append(out, section(10, code)...)
}

func name32(s string) []byte { return append(leb(len(s)), s...) }

func leb(n int) []byte {
	var out []byte
	for {
		b := byte(n & 0x7f)
		if n >>= 7; n == 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}
