/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * RFC 3649, appendix B: up to these windows a round trip adds 1, 2, 3, ... packets, and a loss takes b(w) of the window,
 * b(w) = 0.5 - 0.4 log(w / 38) / log(83000 / 38), here in 256ths and rounded down. A test computes them anew.
 */
#pragma once
#include "math.h"

#define TL_HIGHSPEED_ROWS 73

static const struct tl_highspeed_row {
	__u32 cwnd;	/* packets */
	__u32 less_x256;
} tl_highspeed_table[TL_HIGHSPEED_ROWS] = {
	{38, 128}, {118, 112}, {221, 104}, {347, 98}, {495, 93},
	{663, 89}, {851, 86}, {1058, 83}, {1284, 81}, {1529, 78},
	{1793, 76}, {2076, 74}, {2378, 72}, {2699, 71}, {3039, 69},
	{3399, 68}, {3778, 66}, {4177, 65}, {4596, 64}, {5036, 62},
	{5497, 61}, {5979, 60}, {6483, 59}, {7009, 58}, {7558, 57},
	{8130, 56}, {8726, 55}, {9346, 54}, {9991, 53}, {10661, 52},
	{11358, 52}, {12082, 51}, {12834, 50}, {13614, 49}, {14424, 48},
	{15265, 48}, {16137, 47}, {17042, 46}, {17981, 45}, {18955, 45},
	{19965, 44}, {21013, 43}, {22101, 43}, {23230, 42}, {24402, 41},
	{25618, 41}, {26881, 40}, {28193, 39}, {29557, 39}, {30975, 38},
	{32450, 38}, {33986, 37}, {35586, 36}, {37253, 36}, {38992, 35},
	{40808, 35}, {42707, 34}, {44694, 33}, {46776, 33}, {48961, 32},
	{51258, 32}, {53677, 31}, {56230, 30}, {58932, 30}, {61799, 29},
	{64851, 28}, {68113, 28}, {71617, 27}, {75401, 26}, {79517, 26},
	{84035, 25}, {89053, 24}, {94717, 23},
};

/* The first row that has room for the window. */
TL_INLINE __u32 tl_highspeed_row(__u32 cwnd)
{
	__u32 low = 0, high = TL_HIGHSPEED_ROWS - 1, mid;

	for (int i = 0; i < 7 && low < high; i++) { /* 2^7 rows */
		mid = (low + high) / 2;
		if (mid >= TL_HIGHSPEED_ROWS)
			break; /* never: for the verifier */
		if (tl_highspeed_table[mid].cwnd >= cwnd)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

/* What a loss leaves: 1 - b(w) of the window. */
TL_INLINE __u32 tl_highspeed_left(__u32 cwnd, __u32 row)
{
	if (row >= TL_HIGHSPEED_ROWS)
		row = TL_HIGHSPEED_ROWS - 1; /* never: for the verifier */
	return tl_decrease_by(cwnd, tl_highspeed_table[row].less_x256, 256);
}
