__kernel void work(__global uint *numbers, uint count)
{
	size_t i = get_global_id(0);
	uint x;

	if (i >= count)
		return;
	x = numbers[i];
	for (uint step = 0; step < 64; step++) {
		x = x * 1664525u + 1013904223u;
		x ^= x >> 16;
	}
	numbers[i] = x;
}
