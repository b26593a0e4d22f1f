package docs

import (
	"maps"
	"slices"
	"strings"

	"github.com/acceld/acceld/test/house"
)

// roomsPicture is where the picture of the house is.
const roomsPicture = "docs/pictures/rooms.svg"

// drawRooms draws the house: a room stands above all that it imports, and names those of its imports that are not
// implied by another one.
func drawRooms() string {
	const edge, gap, most = 16, 10, 4
	p := &picture{title: "The rooms of the house, each above what it imports"}
	rooms := house.Rooms()
	y := edge
	for _, floor := range floors(rooms) {
		rows := (len(floor) + most - 1) / most
		for i := range rows {
			row := floor[i*len(floor)/rows : (i+1)*len(floor)/rows]
			wide := (pictureWidth-2*edge+gap)/len(row) - gap
			tall := 0
			var below [][]string
			for _, room := range row {
				lines := broken(strings.Join(direct(rooms, room), ", "), wide/7-3)
				tall = max(tall, 32+len(lines)*lineHeight)
				below = append(below, lines)
			}
			for j, room := range row {
				x := edge + j*(wide+gap)
				p.box("box", x, y, wide, tall)
				p.text("strong", x+12, y+22, room)
				p.lines("small faint", x+12, y+22+lineHeight, below[j])
			}
			y += tall + gap
		}
		y += gap
	}
	legend := broken("A room may import what is on the floors below it. Under its name are the rooms that it imports, without "+
		"those that one of them imports too.", 92)
	p.lines("small faint", edge, y+8, legend)
	return p.svg(y + len(legend)*lineHeight + 8)
}

// floors sorts rooms by how much is below them, the highest floor first: a room is one above the highest that it
// imports.
func floors(rooms map[string][]string) [][]string {
	var level func(room string) int
	level = func(room string) int {
		n := 0
		for _, below := range rooms[room] {
			n = max(n, level(below)+1)
		}
		return n
	}
	var all [][]string
	for _, room := range slices.Sorted(maps.Keys(rooms)) {
		n := level(room)
		for len(all) <= n {
			all = append(all, nil)
		}
		all[n] = append(all[n], room)
	}
	slices.Reverse(all)
	return all
}

// direct returns the imports of a room that no other of its imports has below it.
func direct(rooms map[string][]string, room string) []string {
	var has func(above, below string) bool
	has = func(above, below string) bool {
		return slices.ContainsFunc(rooms[above], func(r string) bool { return r == below || has(r, below) })
	}
	var out []string
	for _, r := range rooms[room] {
		if !slices.ContainsFunc(rooms[room], func(other string) bool { return has(other, r) }) {
			out = append(out, r)
		}
	}
	slices.Sort(out)
	return out
}
