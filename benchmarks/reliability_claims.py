"""What was found to be wrong once, or promised, with the tests and campaigns that look at it again.

Tests are named as pytest names them, without parameters: a file, or `file::name`.
"""

from __future__ import annotations

from dataclasses import dataclass

_CLI, _RUN, _CACHE = "tests/edgetrain/cli", "tests/edgetrain/run", "tests/edgetrain_tuner/cache"
_DATA, _FILES = "tests/edgetrain/dataset", "tests/edgetrain/files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One row of the page. `campaigns` are names in `CAMPAIGNS` of `reliability.py`."""

    holds: str
    tried: str
    tests: tuple[str, ...] = ()
    campaigns: tuple[str, ...] = ()


# In the order of the list that a hostile tester left.
DEFECTS: tuple[Claim, ...] = (
    Claim(
        holds="A run has its folder alone",
        tried="two runs at once, with and without --out, one that waits for its share, one that is killed",
        tests=(f"{_CLI}/test_fit_at_once.py", f"{_RUN}/files/test_claim.py", f"{_RUN}/files/test_folders.py"),
        campaigns=("two at once",),
    ),
    Claim(
        holds="A refused --resume changes nothing, and other data is noticed",
        tried="another optimizer, seed, batch, split, model or update mode; other data",
        tests=(
            f"{_CLI}/test_fit_refused.py::test_a_refused_resume_changes_no_file",
            f"{_CLI}/test_fit_refused.py::test_a_run_goes_on_with_other_data_only_when_told_so",
            f"{_RUN}/files/test_data_identity.py",
        ),
        campaigns=("refused resumes",),
    ),
    Claim(
        holds="A stranger's schedule is tried before it is used",
        tried="entries that claim this machine, by PUT, file and team; schedules that are wrong, crash or hang",
        tests=("tests/edgetrain/compiler/search/test_try_schedules.py", f"{_CACHE}/test_levels.py"),
    ),
    Claim(
        holds="`cache serve` stays there for those it is for",
        tried="slow senders, many connections, headers without end, clients that leave, IPv6",
        tests=(f"{_CACHE}/test_serve.py",),
        campaigns=("strangers at the server",),
    ),
    Claim(
        holds="A compiler without memory or disk is the machine's fault, and said so",
        tried="compilers that are killed, a full TMPDIR, limits on addresses",
        tests=("tests/edgetrain/compiler/test_client.py", f"{_CLI}/test_failure.py"),
    ),
    Claim(
        holds="Nothing is left behind",
        tried="commands that are stopped or killed while they compile and train",
        tests=(
            f"{_CLI}/test_leftovers.py::test_a_command_leaves_nothing_but_what_it_keeps_and_the_commands_of_the_page_remove_that",
            f"{_CLI}/test_leftovers.py::test_a_command_that_is_stopped_while_it_compiles_leaves_no_temporary_files",
            f"{_FILES}/test_scratch.py",
            "tests/edgetrain/compiler/test_client.py::test_the_compiler_does_not_outlive_the_command",
        ),
        campaigns=("kills and full disks",),
    ),
    Claim(
        holds="A changed bit in a file of a run is noticed",
        tried="every bit of recipe.json and job.json; models that are empty, random, links; headers with a right hash",
        tests=(
            f"{_FILES}/test_sealed.py",
            f"{_CLI}/test_fit_refused.py::test_a_changed_bit_in_a_file_of_the_run_stops_what_reads_it",
            f"{_CLI}/test_fit_refused.py::test_a_model_that_the_run_did_not_write_is_not_exported",
            f"{_RUN}/files/test_checkpoint.py::test_a_header_that_the_check_sum_vouches_for_is_still_read_with_care",
        ),
        campaigns=("bits of run files",),
    ),
    Claim(
        holds="Senseless input has words and a documented code",
        tried="deep nesting, huge numbers, lying lengths, pipes, bombs, command lines drawn at random",
        tests=(
            "tests/edgetrain/test_schema.py",
            f"{_FILES}/test_texts.py",
            f"{_FILES}/test_regular_file.py",
            f"{_DATA}/test_npz.py",
            f"{_DATA}/test_wav.py::test_a_chunk_that_lies_about_its_length_is_a_data_error_or_read",
            f"{_DATA}/test_text_files.py",
            f"{_DATA}/test_text.py",
            f"{_DATA}/test_image_check.py",
            f"{_CLI}/test_entry.py",
        ),
        campaigns=("command lines",),
    ),
    Claim(
        holds="Labels and ids out of range are refused, with their sample",
        tried="labels and ids below, above and far beyond their bounds, in Python and in C",
        tests=(
            f"{_DATA}/test_bounds.py",
            "tests/edgetrain/model/test_input_bounds.py",
            "tests/edgetrain/model/test_followed_ids.py",
            "tests/edgetrain/program/test_bounds.py",
            "tests/edgetrain/test_c_bounds.py",
            "tests/edgetrain/test_bounds_of_columns.py",
        ),
    ),
    Claim(
        holds="The process grows by no more than its budget",
        tried="models, batches, optimizers, budgets and threads drawn at random, stored parameters among them",
        tests=(f"{_RUN}/test_memory_limit.py", f"{_RUN}/sensors/test_process_memory.py"),
        campaigns=("memory",),
    ),
    Claim(
        holds="No parameters are saved that are no numbers",
        tried="updates that overflow at the last step, in every tensor, with and without validation",
        tests=(f"{_RUN}/loop/test_finite.py", f"{_RUN}/loop/test_divergence.py"),
    ),
    Claim(
        holds="A run costs the same after any number of steps",
        tried="long runs; requests that are nested too deeply or are pipes; folders that killed runs leave",
        tests=(
            f"{_RUN}/test_long_runs.py",
            f"{_RUN}/files/test_thinned.py",
            f"{_RUN}/files/test_history.py",
            f"{_RUN}/limits/test_exchange.py",
        ),
    ),
    Claim(
        holds="No data file points into memory",
        tried="pickles that name arrays over memory of their choice, or code; damaged bytes",
        tests=(f"{_DATA}/test_object_array.py",),
    ),
    Claim(
        holds="A folder's program runs only if it was built here; hooks do not run",
        tried="replaced libraries with the right hash; hooks of a git repository",
        tests=(
            "tests/edgetrain/pipeline/test_own_program.py",
            f"{_CACHE}/test_shared_files.py::test_the_hooks_of_a_repository_are_not_run",
        ),
    ),
    Claim(
        holds="Links are not followed, answers without end are left, names are our own, caches are bounded",
        tried="links in the place of each file; remotes that always have more; tensors with our names; a full cache",
        tests=(
            f"{_FILES}/test_atomic_file.py",
            f"{_RUN}/loop/test_step_log.py::test_a_log_that_is_a_link_is_refused_and_its_target_kept",
            f"{_CACHE}/test_http_remote.py",
            "tests/edgetrain/model/test_tensor_names.py",
            f"{_FILES}/test_build_cache.py",
        ),
        campaigns=("links",),
    ),
)
# What held from the beginning, tried again. Folders that are not there yet bring no tests.
PROMISES: tuple[Claim, ...] = (
    Claim(
        holds="A run that is killed anywhere goes on to the same bits",
        tried="processes killed at random, at every file operation and step; disks that run full; a clock that jumps",
        tests=(f"{_RUN}/test_resuming.py", f"{_CLI}/test_fit_interrupted.py", "tests/edgetrain/faults"),
        campaigns=("kills and full disks",),
    ),
    Claim(
        holds="A damaged checkpoint is noticed",
        tried="every bit of the header, bits anywhere, truncations",
        tests=(f"{_RUN}/files/test_checkpoint.py",),
        campaigns=("bits of a checkpoint",),
    ),
    Claim(
        holds="Nobody is let in to `cache serve`",
        tried="tokens, paths, methods, smuggled requests; forged signatures; bad entries",
        tests=(f"{_CACHE}/test_serve.py", f"{_CACHE}/test_trust.py", f"{_CACHE}/test_entry_format.py"),
        campaigns=("strangers at the server",),
    ),
    Claim(
        holds="No schedule gives a wrong result",
        tried="schedules drawn at random, against the kernel without a schedule",
        tests=("tests/edgetrain_tuner/rules/test_rules.py", "tests/edgetrain_tuner/rules/test_generic.py"),
    ),
    Claim(
        holds="The C runtime is clean",
        tried="paging, threads, failing transfers",
        tests=("tests/edgetrain/program/test_runtime.py", "tests/edgetrain/runtime"),
    ),
)
CLAIMS = DEFECTS + PROMISES
