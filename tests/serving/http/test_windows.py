"""What Windows lacks must not keep the server from starting: it is taken away here."""

import ctypes
import subprocess
import sys

from tableless.serving.http import served_model as reload


def test_the_server_needs_no_module_of_unix():
    code = (
        "import sys; sys.modules['resource'] = None\n"
        "from tableless.serving.http import app\n"
        "app._allow_many_connections()\n"
        "print('ready')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "ready\n", done.stderr


def test_a_reload_needs_no_symbols_of_the_process(monkeypatch):
    def refuse(name):
        raise TypeError("argument of type 'NoneType' is not iterable")  # as Python on Windows says

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    reload._give_memory_back()
