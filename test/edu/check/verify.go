package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
)

const (
	maxInteresting = 33 // n! modulo 2^32 is 0 from 34 on
	randomChecks   = 4
)

// factorial is n! modulo 2^32, by the CPU.
func factorial(n uint32) uint32 {
	result := uint32(1)
	for ; n > 1; n-- {
		result *= n
	}
	return result
}

// verifyFactorial has the device compute n!, unless it says that it cannot.
func verifyFactorial(a accelerator, n uint32) error {
	i, err := a.Info()
	if err != nil || n > i.MaxFactorial {
		return err
	}
	got, err := a.Factorial(n)
	if err != nil {
		return err
	}
	if want := factorial(n); got != want {
		return fmt.Errorf("wrong result: %d! mod 2^32 is %d, the device says %d", n, want, got)
	}
	return nil
}

// verifyCopy sends size random bytes through the device's memory.
func verifyCopy(a accelerator, size int) error {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	want := sha256.Sum256(data)
	out, err := a.Copy(data)
	if err != nil {
		return err
	}
	if got := sha256.Sum256(out); got != want {
		return fmt.Errorf("wrong data after a round trip of %d bytes: checksum %x, not %x", size, got[:4], want[:4])
	}
	return nil
}

// leaveMax is how much text is left on a device, in bytes.
const leaveMax = 64

// memory is a device whose memory can be read as its last user has left it.
type memory interface {
	Left(size int) ([]byte, error)
}

// leave says what is in a device's memory, and leaves a text there.
func leave(a accelerator, text string, stdout io.Writer) error {
	m, ok := a.(memory)
	if !ok {
		return errors.New("its memory cannot be read")
	}
	left, err := m.Left(leaveMax)
	if err != nil {
		return err
	}
	if found := strings.TrimRight(string(left), "\x00"); found == "" {
		fmt.Fprintln(stdout, "found nothing")
	} else {
		fmt.Fprintf(stdout, "found %q\n", found)
	}
	_, err = a.Copy(append([]byte(text), make([]byte, leaveMax-len(text))...))
	return err
}

// verify checks one device: a known factorial, some random ones, a full and
// an odd-sized copy.
func verify(a accelerator) error {
	numbers := []uint32{0, 10, 34}
	for range randomChecks {
		numbers = append(numbers, 1+rand.Uint32N(maxInteresting))
	}
	for _, n := range numbers {
		if err := verifyFactorial(a, n); err != nil {
			return err
		}
	}
	i, err := a.Info()
	if err != nil {
		return err
	}
	for _, size := range []int{i.DMAMax, 1 + rand.IntN(max(1, i.DMAMax))} {
		if err := verifyCopy(a, size); err != nil {
			return err
		}
	}
	return nil
}
