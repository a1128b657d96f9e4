// What the compiler says where cgo is off: the name below is not defined anywhere.

//go:build !cgo

package inkstone

const _ = inkstone_needs_cgo_set_CGO_ENABLED_to_1_and_install_a_C_compiler
