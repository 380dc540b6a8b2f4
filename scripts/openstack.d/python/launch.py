"""Becomes one of OpenStack's programs: launch.py MODULE:FUNCTION [ARGUMENT]...

In nova-compute, functions that want privileges run in the program itself, which is root's: a daemon for each kind of
them would take 45 MB. nova looks for its compute driver in nova.virt only, so this directory is made a part of that.

neutron maps its tables when the first request comes. If two come at once, as when it starts again in the middle of jobs, it can
answer all further ones with "type object 'Port' has no attribute 'port_forwardings'". So it maps them here, before it serves.
"""
import importlib
import os
import sys


def run_in_place(self, function, *arguments, _wrap_timeout=None, **options):
    return function(*arguments, **options)


def main():
    module, function = sys.argv[1].split(':')
    if module == 'nova.cmd.compute':
        import nova.virt
        from oslo_privsep import priv_context
        priv_context.PrivContext._wrap = run_in_place
        nova.virt.__path__.append(os.path.dirname(os.path.abspath(__file__)))
    sys.argv = [module.rpartition('.')[2]] + sys.argv[2:]
    program = importlib.import_module(module)
    if module == 'neutron.cmd.eventlet.server':
        import neutron.db.migration.models.head  # all tables
        import sqlalchemy.orm
        sqlalchemy.orm.configure_mappers()
    return getattr(program, function)()


sys.exit(main())
