"""The files of the console's pages, which servers (`frontends/console`) and hosts (`hosting/console`) send."""
