package disk

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
)

// An ext4 superblock begins at byte 1024 of the image; the magic number and the file system's UUID are in it
// (https://docs.kernel.org/filesystems/ext4/super.html).
const (
	superblock = 1024
	magicAt    = 0x38
	uuidAt     = 0x68
)

// UUID returns the UUID of the file system in an image. Every build has its own, and ext4 derives its checksums from
// it: a guest that mounted one build cannot continue on another.
func UUID(image string) (string, error) {
	f, err := os.Open(image)
	if err != nil {
		return "", fmt.Errorf("cannot open image: %w", err)
	}
	defer f.Close()
	var block [uuidAt + 16]byte
	if _, err := f.ReadAt(block[:], superblock); err != nil {
		return "", fmt.Errorf("cannot read superblock of %q: %w", image, err)
	}
	if magic := binary.LittleEndian.Uint16(block[magicAt:]); magic != 0xEF53 {
		return "", fmt.Errorf("image %q holds no ext4: magic number %#x", image, magic)
	}
	return hex.EncodeToString(block[uuidAt:]), nil
}
