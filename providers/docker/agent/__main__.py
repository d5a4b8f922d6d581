"""What `python3 -I -S` starts in the container; the words after it are the agent's uid and the interpreters to keep warm."""

from providers.docker.agent.main import main

if __name__ == "__main__":
    raise SystemExit(main())
