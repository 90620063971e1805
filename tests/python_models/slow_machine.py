"""`halimede` for a machine that is busy with other things: an execution may take ten times as long and count as short.

python -m tests.python_models.slow_machine serve ...
"""

from halimede.backends import loop_share

loop_share.INLINE_COST_NS *= 10
loop_share.THREAD_COST_NS *= 10
loop_share.ALONE_COST_NS *= 10

if __name__ == "__main__":
    from halimede.cli.main import main  # imports what takes these times over

    main()
