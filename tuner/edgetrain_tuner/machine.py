"""The machine that rules write kernels for: facts about the target, and the numbers of the cost model.

Every rule gets one `Machine` and knows no other number about hardware. Three facts differ from target to target; the
rest is a model of one kind of core, the same for all targets, in four groups. Each number says where it comes from:

- measured: by an experiment that an ADR in `docs/adr` describes; most of these scripts are not kept.
- chosen: set while kernels were measured on one AVX-512 machine. No kept script reproduces the choice.
- assumption: set from general knowledge of such cores, or to bound memory and code; never compared with other values.
"""

from __future__ import annotations

from dataclasses import dataclass

_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Caches:
    """How much data stays near, and how it is fetched."""

    # Assumption: the line of x86 and most ARM cores. Some ARM cores have 128 bytes.
    line_bytes: int = 64
    # Datasheet of the Zen 5 on which ADR 0029 was measured; taken for all targets.
    first_level_bytes: int = 48 * 1024
    # A tensor larger than this does not stay in a core's own caches from one panel to the next. Chosen.
    core_bytes: int = 4 << 20
    # A tensor larger than this is not in the caches that cores share when a kernel begins. Separates the kernels
    # that were measured, on a machine with 32 MB (ADR 0030); not searched for.
    shared_bytes: int = 16 << 20
    # The same for a result that is stored by columns: the second-level cache of that machine (ADR 0030).
    result_bytes: int = 1 << 20
    # Streams of stores that the hardware prefetcher follows. Inferred from two kernels (ADR 0030).
    prefetched_streams: int = 16
    # Most steps of k in a panel whose A is read by columns: so many lines stay until the next rows read them. Chosen.
    column_depth: int = 128
    # Steps of k that a panel copies for all of its columns, so that the lines it writes are still near. Chosen.
    steps_copied: int = 32
    # Vectors of weights of each tap that Winograd's rule copies before it transforms them. Chosen.
    weight_vectors_copied: int = 32
    # How many short runs of weights ahead Winograd's rule prefetches. Measured with and without it: 0 to 17 % of a
    # kernel's time (ADR 0015); the distance is chosen.
    weight_runs_ahead: int = 2
    # Elements of the generic rule's innermost loop whose sums stay in the first-level cache. Assumption.
    inner_loop: int = 512

    @property
    def line_elements(self) -> int:
        """float32 elements in a line."""
        return self.line_bytes // _FLOAT_BYTES

    @property
    def least_inner_loop(self) -> int:
        """A loop is not split where the inner one would be shorter. Assumption."""
        return self.inner_loop // 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Time in multiply-adds of a whole vector register, unless a comment says otherwise."""

    # An element that is copied in the order of memory, by vectors. Measured (ADR 0029, 0030).
    copy: float = 0.25
    # An element that is copied or stored one by one, out of the order of memory. Measured (ADR 0029).
    scattered: float = 2.5
    # An element that is copied by blocks which are transposed in registers. Measured with AVX-512 (ADR 0030).
    transposed: float = 0.8
    # An element of a run that is shorter than a vector, with a condition on each: taps of a padded window. Chosen.
    short_run: float = 0.9
    # A cache line from beyond a core's caches, where no prefetching helps. Chosen.
    far_line: float = 8.0
    # A vector of a panel, and a line of a column, from the second-level cache. The first measured (ADR 0029), the
    # second chosen with it.
    next_vector: float = 3.5
    next_line: float = 2.5
    # What a register tile costs before its first product. Chosen.
    tile_start: float = 8.0
    # Independent sums that hide the latency of a multiply-add: 4 cycles on 2 units. Datasheets of AVX2 cores and later.
    sums_in_flight: int = 8
    # An aligned load, and one that is not, beside the multiply-adds that it runs alongside of. Chosen.
    load: float = 0.25
    unaligned_load: float = 0.5
    # A cache line of which a single element is read, in loads. Chosen after ADR 0029 measured that it matters.
    loads_of_a_line: float = 2.0
    # Loads, additions and stores of Winograd's transforms in the time of one multiply-add. Assumption: two units.
    transform_operations: int = 2
    # A vector of transformed filters that the block before has driven out of the first-level cache. Chosen.
    filter_fetch: float = 3.0
    # Without vectors, in instructions: a product, and one turn of the loop around a tile's products. Assumptions.
    scalar_product: float = 1.5
    scalar_loop: float = 5.0

    @property
    def split_copy(self) -> float:
        """An element of an image whose even and odd columns are copied to different places. Chosen."""
        return 3 * self.copy

    @property
    def weight_store(self) -> float:
        """A weight of Winograd's weight gradient: gathered from sums that lie far apart, then stored. Chosen."""
        return 2 * self.scattered


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From where on something pays: below, a rule declines or a kernel stays on one core."""

    # Multiply-adds from which the copy of a panel, the copy of a plane, and Winograd's larger scratch pay. Chosen; the
    # last also keeps the memory of small models as it is (ADR 0015).
    packed_multiply_adds: int = 1 << 16
    window_multiply_adds: int = 1 << 14
    winograd_multiply_adds: int = 1 << 22
    # Steps of k from which a panel pays. Chosen.
    packed_depth: int = 4
    # How many times as fast as the direct way Winograd's must be, by the models of both (ADR 0015). Chosen.
    winograd_speedup: float = 1.1
    # How many times the least time is given for the least scratch, in Winograd's rules (ADR 0015). Chosen.
    time_for_scratch: float = 1.07
    # Work from which waking threads pays: in multiply-adds, and in iterations of other loops. Chosen.
    parallel_multiply_adds: int = 1 << 18
    parallel_iterations: int = 1 << 15
    # How much more than a fair share of each kind of jobs, and of the images, a task may get (ADR 0028). Chosen.
    uneven_jobs: float = 1.1
    uneven_images: float = 1.25
    # The narrowest vector that is worth writing out; below, code is scalar. Assumption.
    vector_lanes: int = 4
    # The shortest run of outputs that is worth having innermost, rather than the reduction. Assumption.
    vector_run: int = 4
    # The fewest rows of a block that are worth transposing in registers. Chosen with ADR 0030.
    transposed_rows: int = 4
    # The instructions of a register tile, as a share of those without one, below which it is written. Chosen.
    register_tile_share: float = 0.95
    # The shortest row that is worth sorting lookups for: below, the sort takes about as long as it spares, and an
    # eighth of the memory. Chosen.
    sorted_columns: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much memory and how much code a kernel may take."""

    # Scratch of a task that no schedule may exceed, wherever it comes from. Assumption, for planned memory (ADR 0015).
    task_scratch_bytes: int = 1 << 20
    # A panel takes a part of the second-level cache that any core with vectors has. Assumption (ADR 0011).
    panel_bytes: int = 192 * 1024
    # Small kernels are there for small memories: a panel or plane takes at most this share of what the kernel reads,
    # if that is more than the least. Choices about memory, not speed (ADR 0011, 0012).
    panel_share: float = 1 / 8
    least_panel_bytes: int = 8 * 1024
    # How many times as large a panel a search may try: memory is planned, but should not grow much. Assumption.
    panel_growth: int = 4
    # A plane stays in the first-level cache, or nearly. Assumption (ADR 0012).
    plane_bytes: int = 32 * 1024
    # Planes up to this size are double: a core cannot read at once, in other pieces, what it has just written.
    # Measured on 7 x 7 maps (ADR 0029); the limit is chosen.
    double_plane_bytes: int = 8 * 1024
    # What no choice of a plane may exceed, unless a single tile does. Assumption.
    most_plane_bytes: int = 256 * 1024
    # Winograd's scratch for a task, as a share of what the kernel reads. A choice about memory (ADR 0015, 0025).
    winograd_scratch_share: float = 1 / 4
    # Register tiles side by side in a panel, and along either side of a square of weights. They bound the number of
    # tilings that are compared. Assumptions.
    winograd_panel_tiles: int = 8
    winograd_square_tiles: int = 16
    # What a thread may keep on its stack. Assumption.
    stack_bytes: int = 4096
    # Multiply-adds that a window writes out: more leave the cache of decoded instructions. Chosen.
    window_products: int = 448
    # Products that a register tile writes out in a kernel, about two kilobytes of code; the axes it may have, for
    # more need more addresses than there are registers; its length along one. Chosen (ADR 0020).
    register_tile_products: int = 384
    register_tile_axes: int = 2
    register_tile_length: int = 8
    # Taps that a pool writes out in the whole kernel, so that it stays in the first-level instruction cache; and phases
    # of its stride. Assumptions.
    pooling_taps: int = 1024
    pooling_phases: int = 4
    # Loops that TVM wrote: scratch of the whole kernel, or this share of its tensors if that is more; statements of one
    # register each after unrolling, of which 1400 took LLVM 2.5 s; lanes of a vector. Assumptions (ADR 0021).
    generated_scratch_bytes: int = 1 << 20
    generated_scratch_share: float = 1 / 4
    generated_statements: int = 2048
    generated_lanes: int = 64

    @property
    def stack_elements(self) -> int:
        """float32 elements that a thread may keep on its stack."""
        return self.stack_bytes // _FLOAT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A target as rules see it. Tests and experiments pass other numbers with `dataclasses.replace`."""

    vector_bits: int  # width of a vector register; 0 or 32: scalar code
    vector_registers: int
    cores: int
    caches: Caches = Caches()
    costs: Costs = Costs()
    thresholds: Thresholds = Thresholds()
    limits: Limits = Limits()

    @property
    def lanes(self) -> int:
        """float32 elements in a vector register."""
        return max(self.vector_bits // 32, 1)

    @property
    def has_vectors(self) -> bool:
        """Whether registers are wide enough to write vector code out."""
        return self.lanes >= self.thresholds.vector_lanes
