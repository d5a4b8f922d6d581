"""The program inside every sandbox container, its first process; in the image it sees only Debian's standard library.

It is no part of the wall. What it says is the guest's word: the host bounds it (providers/docker/frames.py), decides caps,
deadline and memory by itself, and ends a run by destroying the container. What the agent does is start guests under another uid
than its own, carry bytes, reap, and be gone when the host is gone.

The talk is frames on the attached stream, each `u32 total | u32 header length | header JSON | body`, at most 1 MiB (wire.py). A
container serves one run. The agent says `ready` first; it reads nothing before.

| from the host | body | what it does |
|---|---|---|
| `{"t":"ping","n":N}` | | answered by `pong` with the same number |
| `{"t":"run","language":"python" or "javascript"}` | the code | runs a snippet |
| `{"t":"put","path":P}` | the bytes, or some of them | a file below /workspace; a second frame with the path appends |
| `{"t":"step"}` | the command | one more shell step, run by `bash -c` |
| `{"t":"want","path":P}` | | one more artifact to bring back |
| `{"t":"calls"}` | | first of all: guests of this run may make calls (channel.py) |
| `{"t":"reply","n":N,"size":S}` | the answer, or some of it | to a call; repeated until S bytes came |
| `{"t":"go"}` | | starts what `put`, `step` and `want` have described |
| `{"t":"cancel"}` | | kills every guest; the run then ends like any other, without further steps or artifacts |

| to the host | body | what it means |
|---|---|---|
| `{"t":"ready","warm":[LANGUAGES]}` | | interpreters that wait for code |
| `{"t":"pong","n":N}` | | |
| `{"t":"out","step":I,"stream":"stdout" or "stderr"}` | the bytes | output; a snippet is step 0 |
| `{"t":"step","step":I,"exit":C}` | | a step of a project ended; a signal is 128 plus its number |
| `{"t":"artifact","path":P,"size":N}` | the bytes, or some of them | in the order asked for; repeated until N bytes came |
| `{"t":"call","n":N,"size":S}` | a guest's message, or some of it | numbered from 1; repeated until S bytes came |
| `{"t":"result","exit":C}` | | the end of a snippet |
| `{"t":"unbegun"}` | | the end of a snippet whose interpreter could not be started, or ended before it began with the program |
| `{"t":"result","outcome":O,"detail":D,"truncated":B}` | | the end of a project: `completed`, `setup_failed`, `runner_failed` |

End of file from the host ends the agent and with it the container, whatever a guest makes the agent wait for. A frame that the
agent does not know ends it too.
"""
