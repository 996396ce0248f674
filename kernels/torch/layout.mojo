"""What the router says of a tensor in one word: everything that changes the code of a specialization.

Bits 0-7 dtype, 8-15 rank, 16-19 layout class, 20 aligned to 16 bytes, 24-31 device type, 32-39 device index,
40 present. dispatch/keys.py reads the same word.
"""

from torch.abi import (
    data_of,
    device_index_of,
    device_type_of,
    dtype_of,
    is_contiguous,
    rank_of,
    sizes_of,
    strides_of,
)
from torch.words import load, store

comptime CONTIGUOUS = 0
comptime DENSE = 1
comptime STRIDED = 2
comptime REPEATED = 3

comptime PRESENT = 1 << 40


def layout_class(rank: Int, sizes: Int, strides: Int) -> Int:
    """Classes a tensor that is not contiguous.

    DENSE: a permutation of contiguous memory. REPEATED: some stride is 0. STRIDED: all else.
    """
    var expected = 1
    var seen = 0
    for d in range(rank):
        if load(sizes, d) == 1:
            seen += 1
        elif load(strides, d) == 0:
            return REPEATED
    while seen < rank:
        var found = False
        for d in range(rank):
            if load(sizes, d) != 1 and load(strides, d) == expected:
                expected *= load(sizes, d)
                seen += 1
                found = True
                break
        if not found:
            return STRIDED
    return DENSE


@always_inline
def describe(tensor: Int, mutable: Bool, flat: Int) -> Int:
    """Returns the tensor's word; writes data, sizes and strides to the three words behind `flat`."""
    var rank = rank_of(tensor)
    var sizes = sizes_of(tensor)
    var strides = strides_of(tensor)
    var data = data_of(tensor, mutable)
    var device_type = device_type_of(tensor)
    store(flat, 0, data)
    store(flat, 1, sizes)
    store(flat, 2, strides)
    var layout = CONTIGUOUS
    if not is_contiguous(tensor):
        layout = layout_class(rank, sizes, strides)
    var word = dtype_of(tensor) | (rank << 8) | (layout << 16) | (device_type << 24) | PRESENT
    if device_type != 0:
        word |= ((device_index_of(tensor) & 255) << 32) | (Int(data & 15 == 0) << 20)
    return word
