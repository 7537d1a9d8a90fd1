package wire

import (
	"errors"
	"strconv"
)

// FrameHeader is how many bytes stand before a message in gRPC: the compressed flag, and the length in four bytes, most
// significant first (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, Length-Prefixed-Message).
const FrameHeader = 5

// ErrFrame is what every error of Unframe wraps.
var ErrFrame = errors.New("want one uncompressed gRPC message")

// frameError says what is wrong with a body.
type frameError string

func (e frameError) Error() string { return string(e) + "; " + ErrFrame.Error() }
func (e frameError) Unwrap() error { return ErrFrame }

// AppendFrame writes a message with its gRPC prefix to the end of dst, and gives dst back. The message has at most
// MaxMessageSize bytes, which is within the prefix' four.
func AppendFrame(dst, message []byte) []byte {
	n := len(message)
	dst = append(dst, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	return append(dst, message...)
}

// Unframe gives the message of a body that holds exactly one, uncompressed, of no more than most bytes. It is a part of
// body, not a copy. Errors wrap ErrFrame.
func Unframe(body []byte, most int) ([]byte, error) {
	if len(body) < FrameHeader {
		return nil, frameError("the body has " + strconv.Itoa(len(body)) + " bytes, the prefix alone 5")
	}
	switch body[0] {
	case 0:
	case 1:
		return nil, frameError("the message is compressed")
	default:
		return nil, frameError("the compressed flag is " + strconv.Itoa(int(body[0])))
	}
	length := uint64(body[1])<<24 | uint64(body[2])<<16 | uint64(body[3])<<8 | uint64(body[4])
	if length > uint64(max(most, 0)) {
		return nil, frameError("the prefix claims " + strconv.FormatUint(length, 10) + " bytes, more than " + strconv.Itoa(most))
	}
	if have := len(body) - FrameHeader; uint64(have) != length {
		return nil, frameError("the prefix claims " + strconv.FormatUint(length, 10) + " bytes, the body has " + strconv.Itoa(have))
	}
	return body[FrameHeader:], nil
}
